package kernel

import (
	"slices"
	"time"

	"heddle/schedule"
)

// planner draws the members of the coming units, with the randomness of the schedule: bpf_get_prandom_u32 is not for secrets.
type planner struct {
	schedule *schedule.Schedule
	every    schedule.Every
	ahead    uint64 // how many units are planned, from the running one on
	write    func(unit uint64, member int)

	clock    time.Time // of the draws: it goes one unit a draw, and never back
	next     uint64    // the first unit that is not planned
	seen     uint64    // the first unit that was not counted among the switches
	last     int       // member of the unit before seen, -1 at first
	members  [planSize]uint8
	usable   []bool
	switches []uint64
}

// newPlanner makes one for programs that send for so long without this process.
func newPlanner(c schedule.Config, members int, patience time.Duration, write func(uint64, int)) (*planner, error) {
	s, err := schedule.New(c, members)
	if err != nil {
		return nil, err
	}
	return &planner{schedule: s, every: c.Every, ahead: ahead(c.Every, patience), write: write, clock: time.Unix(0, 0), last: -1,
		usable: make([]bool, members), switches: make([]uint64, members)}, nil
}

// fill plans from the running unit on, and draws again if other members are usable than before.
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

// ahead is how far a plan reaches: where units are times, longer than the patience.
func ahead(every schedule.Every, patience time.Duration) uint64 {
	switch {
	case every.Packets > 0:
		return planSize / 2
	case every.Period > 0:
		return min(uint64((patience+time.Second)/every.Period)+2, planSize/2)
	}
	return 1
}

// draw gives the member of the next unit.
func (p *planner) draw(usable []bool) int {
	member, _, _ := p.schedule.Take(p.clock, usable, max(1, p.every.Packets))
	p.clock = p.clock.Add(p.every.Period)
	return member
}

// tally counts the switches of the units before the running one, and that to it.
func (p *planner) tally(unit uint64) {
	if unit >= p.seen+planSize/2 {
		p.seen = unit // what was not planned was not sent either
	}
	for ; p.seen <= unit && p.seen < p.next; p.seen++ {
		if member := p.member(p.seen); member != p.last {
			p.last = member
			p.switches[member]++
		}
	}
}
