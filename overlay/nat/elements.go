package nat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"heddle/internal/nft"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// key identifies a connection after translation: where it came from, and the port that it came to.
type key struct {
	client netip.Addr
	port   uint16
}

func keyOf(r Rule) key { return key{r.Client, r.Listen.Port()} }

// put makes a rule hold for ttl, in place of its elements in all, in one transaction: kernels before 6.13 cannot prolong
// one.
func (t *Table) put(r Rule, ttl time.Duration, all content) error {
	f, k, held := familyOf(r.Client), keyOf(r), all.inPlaceOf(t.layout, r) >= 0
	return nft.Change(func(conn *nftables.Conn) (err error) {
		if held {
			err = t.deleteLease(conn, r)
		}
		var e elements
		e.add(r, ttl, t.ports)
		switch {
		case held && all.knows(k): // its count continues
			e.known = nil
		case all.knows(k):
			err = errors.Join(err, conn.SetDeleteElements(t.layout.known(f), one(k.bytes(), 0)))
		case slices.Contains(all.direct, string(past(r))):
			err = errors.Join(err, conn.SetDeleteElements(t.direct(f), one(past(r), 0)))
		}
		return errors.Join(err, e.put(conn, t.layout, f))
	})
}

// elements are the parts of leases, by set.
type elements struct{ leases, open, known, direct []nftables.SetElement }

// add adds the elements of a lease. A node knows a lease until its connections are forgotten, since the kernel keeps those
// longer. A client's connections stay translated; untranslated packets must not bypass the nodes while the kernel may still
// send.
func (e *elements) add(r Rule, ttl time.Duration, ports bool) {
	e.leases = append(e.leases, nftables.SetElement{Key: past(r), Val: join(r.To), Timeout: ttl})
	if !ports {
		e.direct = append(e.direct, one(past(r), ttl+lingers)...)
		return
	}
	e.open = append(e.open, one(keyOf(r).bytes(), ttl)...)
	e.known = append(e.known, one(keyOf(r).bytes(), 0)...)
}

// atOnce is how many elements a message holds. A netlink attribute has at most 64 KiB.
const atOnce = 200

func (e *elements) put(conn *nftables.Conn, l layout, f family) error {
	for set, all := range map[*nftables.Set][]nftables.SetElement{l.leases(f): e.leases, l.open(f): e.open, l.known(f): e.known, l.direct(f): e.direct} {
		for some := range slices.Chunk(all, atOnce) {
			if err := conn.SetAddElements(set, some); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l layout) deleteLease(conn *nftables.Conn, r Rule) error {
	f := familyOf(r.Client)
	err := conn.SetDeleteElements(l.leases(f), one(past(r), 0))
	if l.ports {
		err = errors.Join(err, conn.SetDeleteElements(l.open(f), one(keyOf(r).bytes(), 0)))
	}
	return err
}

// one returns one element. A timeout of 0 means none.
func one(key []byte, timeout time.Duration) []nftables.SetElement {
	return []nftables.SetElement{{Key: key, Timeout: timeout}}
}

// join encodes an address and port as nftables does: each field padded to 4 bytes, in network byte order.
func join(a netip.AddrPort) []byte {
	return append(binary.BigEndian.AppendUint16(a.Addr().AsSlice(), a.Port()), 0, 0)
}

func (k key) bytes() []byte { return join(netip.AddrPortFrom(k.client, k.port)) }

// past is the key of an untranslated packet: its source and destination.
func past(r Rule) []byte { return append(r.Client.AsSlice(), join(r.Listen)...) }

// parsePast and parseJoined decode the kernel's elements.
func parsePast(raw []byte) (client netip.Addr, listen netip.AddrPort, err error) {
	n := (len(raw) - 4) / 2
	if len(raw) != 12 && len(raw) != 36 {
		return netip.Addr{}, netip.AddrPort{}, fmt.Errorf("an element's key has %d bytes", len(raw))
	}
	client, _ = netip.AddrFromSlice(raw[:n])
	listen, err = parseJoined(raw[n:])
	return client, listen, err
}

func parseJoined(raw []byte) (netip.AddrPort, error) {
	if len(raw) != 8 && len(raw) != 20 {
		return netip.AddrPort{}, fmt.Errorf("an element has %d bytes", len(raw))
	}
	n := len(raw) - 4
	a, _ := netip.AddrFromSlice(raw[:n])
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(raw[n:])), nil
}

// content is what a table holds.
type content struct {
	leases []Lease
	known  []key    // at a node
	direct []string // at a client, as the kernel encodes them
}

// inPlaceOf returns the index of the lease in a rule's place, or -1. A node's ports are the same at all its addresses. A
// client may have any number of servers at one port.
func (c content) inPlaceOf(l layout, r Rule) int {
	return slices.IndexFunc(c.leases, func(other Lease) bool {
		return keyOf(other.Rule) == keyOf(r) && (l.ports || other.Listen == r.Listen)
	})
}

// ended returns the keys whose lease has ended.
func (c content) ended() (keys []key) {
	held := map[key]bool{}
	for _, l := range c.leases {
		held[keyOf(l.Rule)] = true
	}
	return slices.DeleteFunc(slices.Clone(c.known), func(k key) bool { return held[k] })
}

func (c content) knows(k key) bool { return slices.Contains(c.known, k) }

// read returns what the kernel holds now; nothing if there is no table.
func (l layout) read() (content, error) {
	conn, err := nft.Connect()
	if err != nil {
		return content{}, err
	}
	var c content
	for _, f := range families {
		bytes, err := l.readKnown(conn, f, &c)
		if absent(err) {
			return content{}, nil
		} else if err != nil {
			return content{}, err
		}
		leases, err := conn.GetSetElements(l.leases(f))
		if err != nil && !absent(err) {
			return content{}, err
		}
		now := time.Now()
		for _, e := range leases {
			client, listen, err := parsePast(e.Key)
			if err != nil {
				return content{}, err
			}
			to, err := parseJoined(e.Val)
			if err != nil {
				return content{}, err
			}
			r := Rule{client, listen, to}
			c.leases = append(c.leases, Lease{r, now.Add(e.Expires), bytes[keyOf(r)]})
		}
	}
	slices.SortFunc(c.leases, func(a, b Lease) int {
		if d := a.Client.Compare(b.Client); d != 0 {
			return d
		}
		return a.Listen.Compare(b.Listen)
	})
	return c, nil
}

// readKnown reads the known keys of a family's table beyond the leases, and the counters.
func (l layout) readKnown(conn *nftables.Conn, f family, c *content) (map[key]uint64, error) {
	if !l.ports {
		all, err := conn.GetSetElements(l.direct(f))
		for _, e := range all {
			c.direct = append(c.direct, string(e.Key))
		}
		return nil, err
	}
	all, err := conn.GetSetElements(l.known(f))
	bytes := map[key]uint64{}
	for _, e := range all {
		at, err := parseJoined(e.Key)
		if err != nil {
			return nil, err
		}
		k := key{at.Addr(), at.Port()}
		c.known = append(c.known, k)
		if e.Counter != nil {
			bytes[k] = e.Counter.Bytes
		}
	}
	return bytes, err
}

// absent reports whether there is no such table. The library returns the kernel's error only as text.
func absent(err error) bool {
	return err != nil && (errors.Is(err, unix.ENOENT) || strings.Contains(err.Error(), unix.ENOENT.Error()))
}

// leftClosed reports whether the table exists and forwards only leases: an earlier process then set forwarding.
func (l layout) leftClosed(f family) bool {
	conn, err := nft.Connect()
	if err != nil {
		return false
	}
	chain, err := conn.ListChain(l.table(f), l.closingChain)
	return err == nil && chain.Policy != nil && *chain.Policy == nftables.ChainPolicyDrop
}

// drop ends one lease.
func (t *Table) drop(r Rule) error {
	return nft.Change(func(conn *nftables.Conn) error { return t.deleteLease(conn, r) })
}

// sweep forgets keys whose lease has ended, and at a node first their connections. A client's keys expire by themselves.
func (t *Table) sweep() error {
	if !t.ports {
		return nil
	}
	all, err := t.read()
	if err != nil {
		return err
	}
	ended := all.ended()
	if len(ended) == 0 {
		return nil
	}
	forget(ended)
	return nft.Change(func(conn *nftables.Conn) error {
		for _, f := range families {
			var gone []nftables.SetElement
			for _, k := range ended {
				if familyOf(k.client).table == f.table {
					gone = append(gone, nftables.SetElement{Key: k.bytes()})
				}
			}
			for some := range slices.Chunk(gone, atOnce) {
				if err := conn.SetDeleteElements(t.layout.known(f), some); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// removeEmpty removes the tables of processes that have ended, once their content has expired.
func removeEmpty() error {
	return nft.Change(func(conn *nftables.Conn) error {
		names, err := nft.Orphans(conn, nftables.TableFamilyIPv4, localWord)
		for _, name := range names {
			l := localLayout
			l.name = name
			if c, err := l.read(); err != nil || len(c.direct)+len(c.leases) > 0 {
				continue // a process that this one cannot see, or packets still to stop
			}
			for _, f := range families {
				conn.DelTable(l.table(f))
			}
		}
		return err
	})
}
