package cloud

import (
	"heddle/pseudonym/gateway"
	"heddle/pseudonym/gateway/v6switch"
	"heddle/pseudonym/linker"
	"heddle/pseudonym/store"
	"heddle/pseudonym/zone"
)

// Status tells about the parts of a cloud that run in this process. Its JSON fields are a stable interface, and the names of metrics.
type Status struct {
	Zone    string          `json:"zone"`
	Gateway *gateway.Counts `json:"gateway,omitempty"`
	Linker  *linker.Counts  `json:"linker,omitempty"`
	DNS     *zone.Counts    `json:"dns,omitempty"`
	// Switch is nil if this process leads no packets to pseudo-addresses.
	Switch *v6switch.Counts `json:"switch,omitempty"`
	// Store has how often each event happened.
	Store map[store.Event]uint64 `json:"store,omitempty" label:"event"`
	// ClockAhead is by how many seconds the store's clock is ahead of the time that stores have run, by which pseudonyms are deleted.
	ClockAhead int64 `json:"clock_ahead_s,omitempty"`
}

// Status returns the state.
func (c *Cloud) Status() Status {
	s := Status{Zone: string(c.o.Zone)}
	if c.parts.Gateway {
		n := c.way.Counts()
		n.AnswerAge = c.router.answerAge()
		s.Gateway = &n
	}
	if c.linker != nil {
		n := c.linker.Counts()
		s.Linker = &n
	}
	if c.parts.DNS {
		n := c.names.Counts()
		if c.addresses != nil {
			n.AnswerAge = c.addresses.router.answerAge()
		}
		s.DNS = &n
	}
	if c.Leads() {
		n := c.addresses.leads.Counts()
		s.Switch = &n
	}
	if c.store != nil {
		s.Store = c.store.Counts()
		s.ClockAhead = c.cleaner.ahead.Load()
	}
	return s
}
