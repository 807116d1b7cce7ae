// Package nat forwards others' TCP connections through this machine: for the time of a lease, a client's connections to a
// port here go to a port elsewhere.
//
// Leases are elements with a timeout in Heddle's own nftables tables, one for IPv4 and one for IPv6. So the kernel ends them
// even without this process, and cuts off their connections. No other table is touched. [Open] makes the tables of an
// overlay node, which forwards connections (DNAT to the destination, SNAT back to itself). [OpenLocal] makes those of a
// client, which sends its own connections to nodes by source address, as in section III-B of the MACHETE paper. Both need
// CAP_NET_ADMIN. If a user-space forwarder is fast enough, prefer it: it needs no privilege, but ends the client's TCP.
package nat

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/journal"
	"heddle/path"
)

// Limits of a table.
const (
	MinTTL    = time.Second
	MaxTTL    = time.Hour
	maxLeases = 4096
	maxClient = 64 // leases per address
)

// lingers is how long after a lease a client's table still stops what the kernel sends of its connections.
const lingers = 2 * time.Minute

// Rule sends TCP from Client to Listen on to To.
type Rule struct {
	Client netip.Addr     `json:"client"`
	Listen netip.AddrPort `json:"listen"`
	To     netip.AddrPort `json:"to"`
}

// Lease is a rule that ends at Until unless renewed. Bytes counts IP packets both ways since the lease or this process began.
type Lease struct {
	Rule
	Until time.Time `json:"until"`
	Bytes uint64    `json:"bytes"`
}

// ErrNoLease means that there is no such lease any more, or that it goes elsewhere.
var ErrNoLease = errors.New("there is no such lease")

// Options configure a node's table.
type Options struct {
	Table       string // name of the table; empty means heddle_nat
	First, Last uint16 // range of leased ports; 0 means 20000 and 20999
	// SetForwarding enables the kernel's forwarding if it is off: for IPv4 at once, for IPv6 with its first lease. The table
	// then drops what is forwarded without a lease, so that the machine is no router for others. Close restores the setting.
	SetForwarding bool
	// Journal is the file that records what is set, for [Clean] after a crash: see [JournalFile]. Its directory also has the
	// lock on the table. If it is empty there is neither.
	Journal string
	Log     *slog.Logger // nil for none
}

// Table is the nftables table. Methods may be called concurrently.
type Table struct {
	layout
	first, last uint16

	log     *slog.Logger
	held    *os.File         // the lock on the table, or nil
	journal *journal.Journal // may be nil

	mu         sync.Mutex
	mayForward bool           // may set forwarding
	forwarding [2]*forwarding // set by us, by the family's number; nil if not
}

// Open makes a node's table, or takes over an earlier process's, with the leases that still hold.
func Open(o Options) (*Table, error) {
	t := &Table{layout: nodeLayout, first: 20000, last: 20999, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler))}
	if o.Table != "" {
		t.name = o.Table
	}
	if o.First != 0 || o.Last != 0 {
		t.first, t.last = o.First, o.Last
	}
	if t.first == 0 || t.last < t.first {
		return nil, &path.Error{What: "nat ports", Why: fmt.Sprintf("%d to %d is no range of ports", o.First, o.Last)}
	}
	if t.mayForward = o.SetForwarding; !t.mayForward {
		if err := families[0].forwards(); err != nil {
			return nil, err
		}
	}
	err := t.recall(o.Journal)
	if err == nil {
		err = t.takeOver()
	}
	if err != nil {
		t.release()
		return nil, err
	}
	if err := t.forward(families[0]); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// release lets other processes have the table.
func (t *Table) release() {
	if t.held != nil {
		t.held.Close()
	}
}

// OpenLocal makes a client's table for this process. Translated connections stay translated. For a while after a lease no
// untranslated packets leave, so that none bypass the nodes. It removes empty tables of processes that have ended.
func OpenLocal() (*Table, error) {
	t := &Table{layout: localLayout, log: slog.New(slog.DiscardHandler)}
	if err := removeEmpty(); err != nil {
		return nil, t.problem("cannot be looked for", err)
	}
	return t, t.takeOver()
}

func (t *Table) takeOver() error {
	left, err := t.read()
	if err != nil {
		return t.problem("cannot be read", err)
	}
	if err := t.write(left, [2]bool{t.forwarding[0] != nil, t.forwarding[1] != nil}); err != nil {
		return t.problem("cannot be made", err)
	}
	return t.sweep()
}

// problem explains a kernel error.
func (t *Table) problem(why string, err error) error {
	e := &path.Error{What: "nftables table " + t.name, Why: why, Err: err}
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		e.Hint = errhint.Rights("CAP_NET_ADMIN") + "; forward mode needs neither"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EAFNOSUPPORT):
		e.Hint = "the kernel lacks nftables or its NAT (nf_tables, nft_chain_nat, nft_masq); forward mode needs neither"
	}
	return e
}

// Lease makes the rule hold for ttl. Port 0 in Listen takes a free one. It refuses a port in use for something else.
func (t *Table) Lease(r Rule, ttl time.Duration) (Lease, error) {
	if err := t.check(&r, ttl); err != nil {
		return Lease{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all, err := t.read()
	if err != nil {
		return Lease{}, t.problem("cannot be read", err)
	}
	if r.Listen, err = t.place(all, r); err != nil {
		return Lease{}, err
	}
	if t.ports {
		if err := t.forward(familyOf(r.Client)); err != nil {
			return Lease{}, err
		}
	}
	if err := t.put(r, ttl, all); err != nil {
		return Lease{}, t.problem("does not take a lease", err)
	}
	return Lease{Rule: r, Until: time.Now().Add(ttl)}, nil
}

func (t *Table) check(r *Rule, ttl time.Duration) error {
	r.Client, r.Listen, r.To = r.Client.Unmap(), unmap(r.Listen), unmap(r.To)
	refuse := func(format string, values ...any) error {
		return &path.Error{What: "lease", Why: fmt.Sprintf(format, values...)}
	}
	switch {
	case !r.Client.IsValid() || !r.Listen.Addr().IsValid() || !r.To.IsValid() || r.To.Port() == 0:
		return refuse("it needs a client's address, an address here, and an address and port to go to")
	case r.Client.Is4() != r.Listen.Addr().Is4() || r.Client.Is4() != r.To.Addr().Is4():
		return refuse("%v, %v and %v are not all IPv4 or all IPv6: the kernel translates no family to another", r.Client, r.Listen.Addr(), r.To)
	case r.Client.Zone() != "" || r.Listen.Addr().Zone() != "" || r.To.Addr().Zone() != "":
		return refuse("an address with a zone cannot be reached through another machine")
	case r.To.Addr().IsMulticast() || r.To.Addr().IsUnspecified() || r.To.Addr().IsLoopback():
		return refuse("%v is no address to forward to", r.To.Addr())
	case ttl < MinTTL || ttl > MaxTTL:
		return refuse("%v is not between %v and %v", ttl, MinTTL, MaxTTL)
	}
	return nil
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// place finds the port of a rule. It refuses a taken port and too many leases.
func (t *Table) place(all content, r Rule) (netip.AddrPort, error) {
	taken, clients := map[uint16]bool{}, 0
	for _, l := range all.leases {
		if l.Client == r.Client {
			clients++
			taken[l.Listen.Port()] = true
		}
	}
	before := all.inPlaceOf(t.layout, r)
	switch {
	case before >= 0 && all.leases[before].Rule == r:
		return r.Listen, nil
	case before >= 0:
		return netip.AddrPort{}, &path.Error{What: fmt.Sprintf("lease of %v for %v", r.Listen, r.Client), Why: "it stands for something else already",
			Hint: "another connection goes the same way: end it first, or use another source address"}
	case len(all.leases) >= maxLeases || clients >= maxClient:
		return netip.AddrPort{}, &path.Error{What: "lease", Why: fmt.Sprintf("there are %d leases, %d of them of %v: no more fit", len(all.leases), clients, r.Client),
			Hint: "release some, or wait until they end"}
	case r.Listen.Port() != 0:
		return r.Listen, nil
	}
	n := int(t.last) - int(t.first) + 1
	for i, from := 0, rand.IntN(max(n, 1)); i < n; i++ {
		port := t.first + uint16((from+i)%n)
		if !taken[port] && port != 0 {
			return netip.AddrPortFrom(r.Listen.Addr(), port), nil
		}
	}
	return netip.AddrPort{}, &path.Error{What: "lease", Why: fmt.Sprintf("all ports from %d to %d are leased to %v", t.first, t.last, r.Client)}
}

// Renew makes a lease end ttl from now. It returns [ErrNoLease] if there is none.
func (t *Table) Renew(r Rule, ttl time.Duration) (Lease, error) {
	if err := t.check(&r, ttl); err != nil {
		return Lease{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all, before, err := t.find(r)
	if err == nil && t.ports {
		err = familyOf(before.Client).forwards()
	}
	if err != nil {
		return Lease{}, err
	}
	err = t.put(before.Rule, ttl, all)
	if errors.Is(err, unix.ENOENT) { // it has just ended
		return Lease{}, ErrNoLease
	} else if err != nil {
		return Lease{}, t.problem("does not renew a lease", err)
	}
	before.Until = time.Now().Add(ttl)
	return before, nil
}

func (t *Table) find(r Rule) (content, Lease, error) {
	all, err := t.read()
	if err != nil {
		return content{}, Lease{}, t.problem("cannot be read", err)
	}
	i := slices.IndexFunc(all.leases, func(l Lease) bool { return l.Rule == r })
	if i < 0 {
		return content{}, Lease{}, ErrNoLease
	}
	return all, all.leases[i], nil
}

// Release ends a lease and its connections. It returns [ErrNoLease] if there is none.
func (t *Table) Release(r Rule) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Client, r.Listen, r.To = r.Client.Unmap(), unmap(r.Listen), unmap(r.To)
	if _, _, err := t.find(r); err != nil {
		return err
	}
	err := t.drop(r)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return t.problem("does not release a lease", err)
	}
	if t.ports {
		forget([]key{keyOf(r)})
	}
	return nil
}

// Leases returns the leases that the kernel holds now.
func (t *Table) Leases() ([]Lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, err := t.read()
	if err != nil {
		return nil, t.problem("cannot be read", err)
	}
	return all.leases, nil
}

// Sweep tells both ends of connections that their lease has ended, and makes room in the table. The kernel blocks them even
// without it. If somebody removed the table of a family whose forwarding Open set, Sweep makes it again, without leases. A
// node calls it every few seconds.
func (t *Table) Sweep() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range families {
		if t.forwarding[f.number] != nil && !t.leftClosed(f) {
			t.log.Warn("somebody opened the nftables table, so that the kernel forwarded for others; it is made again", "table", t.name)
			return t.takeOver()
		}
	}
	return t.sweep()
}

// Close ends all leases, removes the table, and restores forwarding if Open set it. If forwarding cannot be restored, the
// table stays, which blocks the packets of others.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.release()
	if t.ports {
		all, _ := t.read()
		defer forget(all.known)
	}
	left, err := t.undo()
	if removeErr := t.remove(left); removeErr != nil {
		return errors.Join(err, t.problem("cannot be removed", removeErr))
	}
	return err
}
