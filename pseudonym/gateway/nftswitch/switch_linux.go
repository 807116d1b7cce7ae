package nftswitch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"sync"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/nft"
	"heddle/internal/sysctl"
)

// Switch is the table of the network namespace in which it was made. It is safe for concurrent use.
type Switch struct {
	mu   sync.Mutex
	conn *nftables.Conn
	sets map[bool]*sets // by whether they are for IPv6, as far as the machine routes it
}

// New makes the table, or takes over the one of an earlier process with its connections.
func New() (*Switch, error) {
	conn, err := nft.Connect(nftables.AsLasting())
	if err != nil {
		return nil, refused(err)
	}
	s := &Switch{conn: conn, sets: map[bool]*sets{}}
	if err := s.fill(); err != nil {
		return nil, errors.Join(err, conn.CloseLasting())
	}
	return s, nil
}

// Settings: those which let a machine route IPv4 and IPv6, and the TTL of its own packets.
const (
	forwarding4 = "/proc/sys/net/ipv4/ip_forward"
	forwarding6 = "/proc/sys/net/ipv6/conf/all/forwarding"
	defaultTTL4 = "/proc/sys/net/ipv4/ip_default_ttl"
	defaultTTL6 = "/proc/sys/net/ipv6/conf/all/hop_limit"
)

func (s *Switch) fill() error {
	table := nft.Inet(Table)
	s.conn.AddTable(table)
	in, out := chains(s.conn, table)
	for _, f := range []struct {
		v6              bool
		forwarding, ttl string
	}{{false, forwarding4, defaultTTL4}, {true, forwarding6, defaultTTL6}} {
		on, err := sysctl.Get(f.forwarding)
		if errors.Is(err, fs.ErrNotExist) || err == nil && on != "1" {
			continue
		}
		text, other := sysctl.Get(f.ttl)
		ttl, third := strconv.ParseUint(text, 10, 8)
		if err := errors.Join(err, other, third); err != nil {
			return err
		}
		s.sets[f.v6] = newSets(table, f.v6)
		if err := s.sets[f.v6].add(s.conn, in, out, byte(ttl)); err != nil {
			return err
		}
	}
	if len(s.sets) == 0 {
		return &errhint.Error{What: "the switch", Why: "this machine does not route packets to tenants", Hint: "sysctl -w " + sysctl.Name(forwarding4) + "=1"}
	}
	return refused(s.conn.Flush())
}

func refused(err error) error {
	if errors.Is(err, unix.EPERM) {
		return &errhint.Error{What: "the switch", Why: "this process may not change nftables", Hint: errhint.Rights("CAP_NET_ADMIN"), Err: err}
	}
	return err
}

// Lead leads the packets of a connection between client and gateway to its tenant from then on, which has it with the same port.
func (s *Switch) Lead(client, gateway, tenant netip.AddrPort) error {
	v6 := client.Addr().Is6()
	if gateway.Addr().Is6() != v6 || tenant.Addr().Is6() != v6 || gateway.Port() != tenant.Port() {
		return fmt.Errorf("a connection of %v and %v cannot be that of %v", client, gateway, tenant)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sets := s.sets[v6]
	if sets == nil {
		return fmt.Errorf("this machine does not route packets of %v", client.Addr())
	}
	err := errors.Join(
		s.conn.SetAddElements(sets.to, []nftables.SetElement{{Key: key(client, gateway), Val: tenant.Addr().AsSlice(), Timeout: Idle}}),
		s.conn.SetAddElements(sets.back, []nftables.SetElement{{Key: key(tenant, client), Val: gateway.Addr().AsSlice(), Timeout: Idle}}))
	if err = errors.Join(err, s.conn.Flush()); err != nil {
		err = errors.Join(err, s.again())
	}
	return err
}

// again makes what is missing of the table, which somebody may have removed, by another socket: the old one may be out of step.
func (s *Switch) again() error {
	_ = s.conn.CloseLasting()
	conn, err := nft.Connect(nftables.AsLasting())
	if err != nil {
		return err
	}
	s.conn = conn
	return s.fill()
}

// Close lets go of the table, which goes on without it.
func (s *Switch) Close() error { return s.conn.CloseLasting() }

// key is the source and destination of packets, as the rules load them.
func key(source, destination netip.AddrPort) (b []byte) {
	for _, a := range []netip.AddrPort{source, destination} {
		b = append(b, a.Addr().AsSlice()...)
		b = append(binary.BigEndian.AppendUint16(b, a.Port()), 0, 0) // registers have four bytes
	}
	return b
}
