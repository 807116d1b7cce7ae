package ovsswitch

import (
	"net/netip"
	"time"

	"heddle/pseudonym/gateway/lead"
)

// Each calls f for each connection that is led and has not ended. OpenFlow 1.4 counts packets and does not say when the last one came, so that is
// the time of the first call which finds more of them.
func (s *Switch) Each(f func(lead.Connection) error) error {
	bridge, err := s.current()
	if err != nil {
		return err
	}
	all, err := bridge.Flows(prefix, prefixMask)
	if err != nil {
		return err
	}
	packets, ended := map[uint64]uint64{}, map[uint64]bool{}
	for _, k := range all {
		switch number, of := split(k.Cookie); of {
		case roleTo, roleBack:
			packets[number] += k.Packets
			ended[number] = ended[number] || k.Idle < lead.Idle
		}
	}
	for _, c := range s.seen(packets, ended, time.Now()) {
		if err := f(c); err != nil {
			return err
		}
	}
	return nil
}

// seen returns the connections that have not ended, given how many packets passed by the flows of each number.
func (s *Switch) seen(packets map[uint64]uint64, ended map[uint64]bool, now time.Time) (all []lead.Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.entries {
		n, has := packets[c.number]
		if !has || ended[c.number] || c.ending {
			continue
		}
		if n > c.packets || n > 0 && n < c.packets { // fewer are those since flows were added again
			c.last = now
		}
		c.packets = n
		all = append(all, lead.Connection{Client: c.client, Gateway: c.gateway, Tenant: c.tenant, Last: c.last})
	}
	return all
}

// Touch lets the entries of a connection last as if packets came by now, unless some came in the time before that is given. It reports false if the
// switch does not lead the connection to that tenant.
func (s *Switch) Touch(client, gateway, tenant netip.AddrPort, unless time.Duration) (bool, error) {
	s.mu.Lock()
	c, now := s.entries[key{client, gateway}], time.Now()
	if c == nil || c.tenant != tenant {
		s.mu.Unlock()
		return false, nil
	}
	bridge := s.bridge
	if c.ending || c.broken || now.Sub(c.last) < unless {
		s.mu.Unlock()
		return true, nil
	}
	if bridge == nil {
		s.mu.Unlock()
		return true, errNoBridge
	}
	changes := remove(c.number, ofConnection...) // flows that take the place of others go on with their idle time
	delete(s.numbers, c.number)
	c.number, c.last, c.packets = s.next(), now, 0
	s.numbers[c.number] = c
	changes = append(changes, s.flows(c)...)
	s.mu.Unlock()
	if err := bridge.Change(changes...); err != nil {
		s.mu.Lock()
		s.drop(c) // the flows may have the former number; to lead it again replaces them
		s.mu.Unlock()
		return false, err
	}
	return true, nil
}
