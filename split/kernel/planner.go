package kernel

import (
	"slices"
	"time"

	"heddle/schedule"
)

// planner draws the members of the coming units with the schedule's randomness: bpf_get_prandom_u32 is not secure.
type planner struct {
	schedule *schedule.Schedule
	every    schedule.Every
	ahead    uint64 // units to plan, from the running one on
	write    func(unit uint64, member int)

	clock    time.Time // time of the draws: advances one unit a draw, never back
	next     uint64    // the first unplanned unit
	seen     uint64    // the first unit not counted among the switches
	last     int       // member of the unit before seen, -1 at first
	members  [planSize]uint8
	usable   []bool
	switches []uint64
}

// newPlanner makes a planner for programs that keep sending for patience without this process.
func newPlanner(c schedule.Config, members int, patience time.Duration, write func(uint64, int)) (*planner, error) {
	s, err := schedule.New(c, members)
	if err != nil {
		return nil, err
	}
	return &planner{schedule: s, every: c.Every, ahead: ahead(c.Every, patience), write: write, clock: time.Unix(0, 0), last: -1,
		usable: make([]bool, members), switches: make([]uint64, members)}, nil
}

// fill plans from the running unit on. It draws again if the usable members have changed.
func (p *planner) fill(unit uint64, usable []bool) {
	p.tally(unit)
	changed := !slices.Equal(usable, p.usable)
	copy(p.usable, usable)
	switch {
	case p.next <= unit:
		p.next = unit
	case changed && !usable[p.member(unit)]:
		p.next = unit
	case changed:
		p.next = unit + 1
	}
	for ; p.next < unit+p.ahead; p.next++ {
		member := p.draw(usable)
		if member < 0 {
			return
		}
		p.members[p.next%planSize] = uint8(member)
		p.write(p.next, member)
	}
}

func (p *planner) member(unit uint64) int { return int(p.members[unit%planSize]) }

// ahead returns how many units to plan: for units of time, more than patience.
func ahead(every schedule.Every, patience time.Duration) uint64 {
	switch {
	case every.Packets > 0:
		return planSize / 2
	case every.Period > 0:
		return min(uint64((patience+time.Second)/every.Period)+2, planSize/2)
	}
	return 1
}

// draw returns the member of the next unit.
func (p *planner) draw(usable []bool) int {
	member, _, _ := p.schedule.Take(p.clock, usable, max(1, p.every.Packets))
	p.clock = p.clock.Add(p.every.Period)
	return member
}

// tally counts the switches up to the running unit.
func (p *planner) tally(unit uint64) {
	if unit >= p.seen+planSize/2 {
		p.seen = unit // an unplanned unit was not sent
	}
	for ; p.seen <= unit && p.seen < p.next; p.seen++ {
		if member := p.member(p.seen); member != p.last {
			p.last = member
			p.switches[member]++
		}
	}
}
