// Package answers keeps this machine's own answers to a server off networks that nobody chose. The kernel answers a packet that
// has no socket with an ICMP error, which quotes the packet, or with a TCP segment. It routes that answer anew, by the main
// route, whatever device the packet came by.
//
// [Guard] writes the servers into one nftables table for all processes of this machine. Each entry ends by itself, [Lasting]
// after it was last renewed, so that it outlives a process that was killed. An empty table has no effect. It needs
// CAP_NET_ADMIN; package keeper needs no rights.
package answers

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"heddle/internal/nft"
)

// Lasting is how long an entry has effect.
const Lasting = 5 * time.Minute

// Guard drops answers to the servers from now on, for [Lasting]:
//
//   - ICMP errors, which quote packets. Those that tell of a smaller MTU pass: only routers send them.
//   - TCP resets that leave by another device than the one with their source address. A socket that is bound to its device
//     may reset its connection.
//   - With IPv6, bare TCP acknowledgements that leave so and that no open socket sends. In TIME_WAIT the kernel acknowledges a
//     late FIN (tcp_v6_timewait_ack). For this it only prefers the device of the closed socket: of two routes to the same prefix
//     it takes the one with the lower metric. With IPv4 it keeps to the device.
func Guard(servers ...netip.Addr) error {
	err := add(servers)
	if errors.Is(err, unix.ENOENT) { // no table yet
		if err = nft.Change(create); errors.Is(err, unix.EEXIST) {
			err = nil // another process was faster
		}
		if err == nil {
			err = add(servers)
		}
	}
	return err
}

// Entry is a server that is guarded now.
type Entry struct {
	Server netip.Addr
	Left   time.Duration // until the entry ends
}

// Entries lists the entries of all processes.
func Entries() (all []Entry, err error) {
	conn, err := nft.Connect()
	if err != nil {
		return nil, err
	}
	tables, err := conn.ListTablesOfFamily(table.Family)
	if err != nil || !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == table.Name }) {
		return nil, err
	}
	for _, f := range families {
		entries, err := conn.GetSetElements(f.servers())
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			server, _ := netip.AddrFromSlice(e.Key)
			all = append(all, Entry{server, e.Expires})
		}
	}
	return all, nil
}

// RemoveEmpty removes the table if no entry is left.
func RemoveEmpty() error {
	if all, err := Entries(); err != nil || len(all) > 0 {
		return err
	}
	return nft.Remove(table)
}

// Table is the name of the table, which no session has: within a word, nft.Name writes hexadecimal digits after each _.
var Table = nft.Name("late", "answers")

var table = nft.Inet(Table)

// family is what differs between IPv4 and IPv6.
type family struct {
	v6      bool
	set     string
	address nftables.SetDatatype
	icmp    byte
	errors  []byte // types of ICMP messages
}

var families = []family{
	{false, "servers4", nftables.TypeIPAddr, unix.IPPROTO_ICMP, []byte{unreachable, 11, 12}}, // RFC 792
	{true, "servers6", nftables.TypeIP6Addr, unix.IPPROTO_ICMPV6, []byte{1, 3, 4}},           // RFC 4443; 2 is "packet too big"
}

// servers is the set of servers.
func (f family) servers() *nftables.Set {
	s := &nftables.Set{Table: table, ID: 1, Name: f.set, HasTimeout: true, KeyType: f.address}
	if f.v6 {
		s.ID = 2
	}
	return s
}

// most is how many entries a message holds. A netlink attribute has at most 64 KiB.
const most = 200

// add adds entries, or starts their time anew. Kernels before 6.13 cannot prolong an entry: it is added in case it is not
// there, removed, and added.
func add(servers []netip.Addr) error {
	return nft.Change(func(conn *nftables.Conn) error {
		for _, f := range families {
			var entries []nftables.SetElement
			for _, s := range servers {
				if s.Is6() == f.v6 {
					entries = append(entries, nftables.SetElement{Key: s.AsSlice(), Timeout: Lasting})
				}
			}
			for some := range slices.Chunk(entries, most) {
				set := f.servers()
				if err := errors.Join(conn.SetAddElements(set, some), conn.SetDeleteElements(set, some), conn.SetAddElements(set, some)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
