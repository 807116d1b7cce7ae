package mptcp

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/identity"
	"heddle/path/group"
)

var (
	here  = netip.MustParseAddrPort("192.0.2.1:4000")
	other = netip.MustParseAddrPort("192.0.2.9:4001")
	nodes = []netip.AddrPort{netip.MustParseAddrPort("198.51.100.1:20000"), netip.MustParseAddrPort("198.51.100.2:20000")}
)

func seen(local, remote netip.AddrPort, state uint8, sent uint64, unacked uint32, retransmits uint8) subflow {
	return subflow{local: local, remote: remote, tcp: unix.TCPInfo{State: state, Bytes_sent: sent, Unacked: unacked, Retransmits: retransmits}}
}

// What the kernel says, step by step, and what is made of it.
func TestObserve(t *testing.T) {
	members := newMembers([]Subflow{{Name: "a", To: nodes[0]}, {Name: "b", To: nodes[1], From: other.Addr(), Through: here.Addr()}}, here.Addr())
	if a, b := members[0].Observer, members[1].Observer; a != nodes[0].Addr().String() || b != here.Addr().String() {
		t.Errorf("seen at %s and %s", a, b)
	}
	if members[0].source != here.Addr() || members[1].source != other.Addr() || members[0].id == 0 || members[0].id == members[1].id {
		t.Errorf("sources %v and %v, ids %d and %d", members[0].source, members[1].source, members[0].id, members[1].id)
	}
	first := seen(here, nodes[0], unix.BPF_TCP_ESTABLISHED, 100, 0, 0)
	moved := netip.AddrPortFrom(other.Addr(), 4999)
	for i, step := range []struct {
		now        []subflow
		a, b       string
		bytes      uint64 // of b
		healthy    int
		dialledYet bool
	}{
		{[]subflow{first}, stateUp, stateDialling, 0, 1, false},
		{[]subflow{first, seen(here, nodes[1], unix.BPF_TCP_ESTABLISHED, 9, 0, 0)}, stateUp, stateDialling, 0, 1, false}, // from the wrong address
		{[]subflow{first, seen(other, nodes[1], unix.BPF_TCP_SYN_SENT, 0, 1, 1)}, stateUp, stateDialling, 0, 1, true},
		{[]subflow{seen(other, nodes[1], unix.BPF_TCP_ESTABLISHED, 10, 0, 0), first}, stateUp, stateUp, 10, 2, false},
		{[]subflow{first, seen(other, nodes[1], unix.BPF_TCP_ESTABLISHED, 30, 4, 1)}, stateUp, stateStalled, 30, 1, false},
		{[]subflow{first, seen(other, nodes[1], unix.BPF_TCP_ESTABLISHED, 40, 4, 0)}, stateUp, stateUp, 40, 2, false},
		{[]subflow{first, seen(other, nodes[1], unix.BPF_TCP_CLOSE_WAIT, 40, 0, 0)}, stateUp, stateDown, 40, 1, false},
		{[]subflow{first}, stateUp, stateDown, 40, 1, false},
		{[]subflow{first, seen(moved, nodes[1], unix.BPF_TCP_ESTABLISHED, 5, 0, 0)}, stateUp, stateUp, 45, 2, false},
		{nil, stateDown, stateDown, 45, 0, false},
	} {
		members, _ = observe(members, step.now, false)
		a, b := members[0], members[1]
		if a.State != step.a || b.State != step.b || b.Up.Bytes != step.bytes || healthy(members) != step.healthy || b.dialled != step.dialledYet || len(members) != 2 {
			t.Errorf("step %d: a %s, b %+v", i, a.State, b)
		}
		if (b.State == stateUp) != (b.Why == "") {
			t.Errorf("step %d: b is %s: %q", i, b.State, b.Why)
		}
	}
}

// A peer cannot make the side that listens remember ever more.
func TestObserveIsBounded(t *testing.T) {
	var members []*member
	for i := range 200 {
		from := netip.AddrPortFrom(nodes[0].Addr(), uint16(1000+i))
		members, _ = observe(members, []subflow{seen(here, from, unix.BPF_TCP_ESTABLISHED, 1, 0, 0)}, true)
		if len(members) > 2*MaxPaths+1 || healthy(members) != 1 || members[len(members)-1].to != from {
			t.Fatalf("%d members after %d subflows, %d up", len(members), i, healthy(members))
		}
	}
}

func TestOptionsThatContradict(t *testing.T) {
	id := fresh(t)
	good := func() Options {
		return Options{Subflows: []Subflow{{Name: "a", To: nodes[0]}, {Name: "b", To: nodes[1]}}, Identity: id, Peer: id.Key()}
	}
	o := good()
	if err := o.complete(); err != nil || o.MinPaths != 2 || o.Patience != DefaultPatience {
		t.Fatalf("%+v, %v", o, err)
	}
	for name, change := range map[string]func(*Options){
		"no path":           func(o *Options) { o.Subflows = nil },
		"too many":          func(o *Options) { o.Subflows = make([]Subflow, MaxPaths+1) },
		"the same twice":    func(o *Options) { o.Subflows[1] = o.Subflows[0] },
		"no port":           func(o *Options) { o.Subflows[1].To = netip.AddrPortFrom(nodes[1].Addr(), 0) },
		"two families":      func(o *Options) { o.Subflows[1].To = netip.MustParseAddrPort("[2001:db8::1]:1") },
		"too many required": func(o *Options) { o.MinPaths = 3 },
		"no peer":           func(o *Options) { o.Peer = identity.Key{} },
		"long service":      func(o *Options) { o.Service = string(make([]byte, 256)) },
	} {
		o := good()
		if change(&o); o.complete() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// A connection that fell back to plain TCP has no subflows to ask for: nothing more may be written.
func TestNothingIsWrittenBlindly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var d net.Dialer
	d.SetMultipathTCP(false)
	plain, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	raw, err := plain.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	c := &Conn{socket: socket{raw}, quorum: group.Quorum{Min: 1}, changed: make(chan struct{})}
	c.quorum.Set(1)
	if _, err := c.look(false); err == nil {
		t.Error("plain TCP has subflows")
	}
	if c.quorum.Enough() || time.Since(c.lacking) > time.Minute {
		t.Errorf("enough subflows are up, and were until %v", c.lacking)
	}
}
