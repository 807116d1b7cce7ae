package nftswitch

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/nft"
	"heddle/pseudonym/gateway/lead"
)

// Switch is the table of the network namespace in which it was made. It is safe for concurrent use.
type Switch struct {
	mu      sync.Mutex
	changes *changes
	sets    map[bool]*sets // by whether they are for IPv6, as far as the machine routes it
}

// New makes the table, or takes over the one of an earlier process with its connections.
func New() (*Switch, error) {
	s := &Switch{}
	if err := s.again(); err != nil {
		return nil, err
	}
	return s, nil
}

// fill makes what is missing of the table.
func (s *Switch) fill(conn *nftables.Conn) error {
	table := nft.Inet(Table)
	conn.AddTable(table)
	in, out := chains(conn, table)
	s.sets = map[bool]*sets{}
	families, err := lead.Families()
	if err != nil {
		return err
	}
	for _, f := range families {
		s.sets[f.V6] = newSets(table, f.V6)
		if err := s.sets[f.V6].add(conn, in, out, f.TTL); err != nil {
			return err
		}
	}
	return nil
}

func refused(err error) error {
	if errors.Is(err, unix.EPERM) {
		return &errhint.Error{What: "the switch", Why: "this process may not change nftables", Hint: errhint.Rights("CAP_NET_ADMIN"), Err: err}
	}
	return err
}

// Lead leads the packets of a connection between client and gateway to its tenant from then on, which has it with the same port.
func (s *Switch) Lead(client, gateway, tenant netip.AddrPort) error {
	if err := lead.Check(client, gateway, tenant); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sets := s.sets[client.Addr().Is6()]
	if sets == nil {
		return lead.NotRouted(client)
	}
	err := s.changes.commit(func() {
		s.changes.add(sets.to, key(client, gateway), tenant.Addr().AsSlice(), lead.Idle, false)
		s.changes.add(sets.back, key(tenant, client), gateway.Addr().AsSlice(), lead.Idle, true)
	})
	if err != nil {
		err = errors.Join(err, s.again())
	}
	return err
}

// again makes what is missing of the table, which somebody may have removed, and takes another socket: the old one may be out of step.
func (s *Switch) again() error {
	if err := nft.Change(s.fill); err != nil {
		return refused(err)
	}
	changes, err := newChanges()
	if err != nil {
		return err
	}
	if s.changes != nil {
		_ = s.changes.close()
	}
	s.changes = changes
	return nil
}

// Close lets go of the table, which goes on without it.
func (s *Switch) Close() error { return s.changes.close() }

// key is the source and destination of packets, as the rules load them.
func key(source, destination netip.AddrPort) (b []byte) {
	for _, a := range []netip.AddrPort{source, destination} {
		b = append(b, a.Addr().AsSlice()...)
		b = append(binary.BigEndian.AppendUint16(b, a.Port()), 0, 0) // registers have four bytes
	}
	return b
}
