package nftswitch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"heddle/pseudonym/gateway/lead"
)

// Each calls f for each connection that is led and has not ended. If others come and go meanwhile, it may leave some out.
func (s *Switch) Each(f func(lead.Connection) error) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	families := s.sets
	s.mu.Unlock()
	for _, of := range families {
		if err := s.reads.connections(of, f); err != nil {
			again, other := newChanges() // the old one may be out of step
			if other == nil {
				_ = s.reads.close()
				s.reads = again
			}
			return errors.Join(err, other)
		}
	}
	return nil
}

// connections calls f for those of a family.
func (c *changes) connections(of *sets, f func(lead.Connection) error) error {
	ended := map[string]bool{}
	if err := c.each(of.ended, func(e element) error {
		ended[string(e.key)] = true
		return nil
	}); err != nil {
		return err
	}
	return c.each(of.to, func(e element) error {
		if ended[string(e.key)] {
			return nil
		}
		client, gateway, ok := endsOf(e.key)
		tenant, is := netip.AddrFromSlice(e.value)
		if !ok || !is {
			return fmt.Errorf("a set of nftables has the element %x", e.key)
		}
		return f(lead.Connection{Client: client, Gateway: gateway, Tenant: netip.AddrPortFrom(tenant, gateway.Port()), Last: time.Now().Add(e.expires - lead.Idle)})
	})
}

// Touch lets the entries of a connection last as if packets came by now, unless some came in the time before that is given. It reports false if the
// switch does not lead the connection to that tenant.
func (s *Switch) Touch(client, gateway, tenant netip.AddrPort, unless time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sets := s.sets[client.Addr().Is6()]
	if sets == nil {
		return false, lead.NotRouted(client)
	}
	var old []entry
	for _, one := range sets.entries(client, gateway, tenant) {
		e, has, err := s.changes.get(one.set, one.key)
		if err != nil || !has || !bytes.Equal(e.value, one.value) {
			return false, err
		}
		if lead.Idle-e.expires >= unless {
			old = append(old, one)
		}
	}
	if len(old) == 0 {
		return true, nil
	}
	err := s.replace(old)
	return err == nil, err
}

// endsOf is the opposite of key.
func endsOf(key []byte) (source, destination netip.AddrPort, ok bool) {
	end := func(b []byte) (netip.AddrPort, bool) {
		at := len(b) - 4
		a, ok := netip.AddrFromSlice(b[:at])
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[at:])), ok
	}
	half := len(key) / 2
	if half < 4 {
		return source, destination, false
	}
	source, ok = end(key[:half])
	destination, is := end(key[half:])
	return source, destination, ok && is
}
