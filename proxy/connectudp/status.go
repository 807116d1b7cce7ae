package connectudp

import (
	"sync/atomic"
	"time"
)

// counts are the totals since the proxy began.
type counts struct {
	flows, refusedAuth, refusedTarget, refusedLimit atomic.Uint64
	up, down                                        tally
}

type tally struct{ packets, bytes, dropped atomic.Uint64 }

func (t *tally) add(bytes int) {
	t.packets.Add(1)
	t.bytes.Add(uint64(bytes))
}

// Status is a proxy's statistics. It contains no client address and no target.
type Status struct {
	Listen      string    `json:"listen"`
	Since       time.Time `json:"since"`
	Users       int       `json:"users"`
	Connections int       `json:"connections"`
	// Open is the number of open flows of each user who has any.
	Open          map[string]int `json:"open"`
	FlowsOpen     int            `json:"flows_open"`
	Flows         uint64         `json:"flows"`
	RefusedAuth   uint64         `json:"refused_auth"`
	RefusedTarget uint64         `json:"refused_target"`
	RefusedLimit  uint64         `json:"refused_limit"`
	Up            Direction      `json:"up"`
	Down          Direction      `json:"down"`
}

// Direction counts one direction; up is from clients to targets.
type Direction struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Dropped uint64 `json:"dropped"`
}

func (t *tally) direction() Direction {
	return Direction{Packets: t.packets.Load(), Bytes: t.bytes.Load(), Dropped: t.dropped.Load()}
}

// Status returns the current statistics.
func (p *Proxy) Status() Status {
	users := 0
	if p.o.Users != nil {
		users = p.o.Users.Count()
	}
	return Status{Listen: p.Addr().String(), Since: p.since, Users: users, Connections: p.sources.Count() + p.unproven.Count(), Open: p.users.Counts(), FlowsOpen: p.users.Count(),
		Flows: p.counts.flows.Load(), RefusedAuth: p.counts.refusedAuth.Load(), RefusedTarget: p.counts.refusedTarget.Load(),
		RefusedLimit: p.counts.refusedLimit.Load(), Up: p.counts.up.direction(), Down: p.counts.down.direction()}
}
