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

	reading sync.Mutex
	reads   *changes // that take long; reading guards it
}

// New makes the table, or takes over the one of an earlier process with its connections.
func New() (*Switch, error) {
	s := &Switch{}
	if err := s.again(); err != nil {
		return nil, err
	}
	reads, err := newChanges()
	if err != nil {
		return nil, errors.Join(err, s.changes.close())
	}
	s.reads = reads
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
	entries := sets.entries(client, gateway, tenant)
	err := s.changes.commit(func() { s.add(entries) })
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) { // as the client uses its port again, and this switch did not see how the old connection ended
		err = s.replace(append(entries, sets.marks(client, gateway)...))
	}
	if err != nil {
		err = errors.Join(err, s.again())
	}
	return err
}

// entry is an element of a set.
type entry struct {
	set        *nftables.Set
	key, value []byte // value is nil in a mark
}

// entries are those that lead a connection.
func (s *sets) entries(client, gateway, tenant netip.AddrPort) []entry {
	return []entry{{s.to, key(client, gateway), tenant.Addr().AsSlice()}, {s.back, key(tenant, client), gateway.Addr().AsSlice()}}
}

// marks are those that a connection may have.
func (s *sets) marks(client, gateway netip.AddrPort) (all []entry) {
	for _, set := range []*nftables.Set{s.finished, s.answered, s.ended} {
		all = append(all, entry{set, key(client, gateway), nil})
	}
	return all
}

// add adds entries to a change.
func (s *Switch) add(entries []entry) {
	for i, e := range entries {
		s.changes.add(e.set, e.key, e.value, lead.Idle, i == len(entries)-1)
	}
}

// replace adds entries in place of those with their keys, and removes marks. Linux before 6.12 prolongs no element, so that also takes its place.
func (s *Switch) replace(entries []entry) error {
	var old, add []entry
	for _, e := range entries {
		_, has, err := s.changes.get(e.set, e.key)
		if err != nil {
			return err
		}
		if has {
			old = append(old, e)
		}
		if e.value != nil {
			add = append(add, e)
		}
	}
	err := s.changes.commit(func() {
		for _, e := range old {
			s.changes.remove(e.set, e.key)
		}
		s.add(add)
	})
	if errors.Is(err, unix.ENOENT) && len(old) > 0 { // one has just ended
		return s.replace(entries)
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
func (s *Switch) Close() error {
	s.reading.Lock()
	defer s.reading.Unlock()
	return errors.Join(s.changes.close(), s.reads.close())
}

// key is the source and destination of packets, as the rules load them.
func key(source, destination netip.AddrPort) (b []byte) {
	for _, a := range []netip.AddrPort{source, destination} {
		b = append(b, a.Addr().AsSlice()...)
		b = append(binary.BigEndian.AppendUint16(b, a.Port()), 0, 0) // registers have four bytes
	}
	return b
}
