package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"heddle/internal/netutil"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
)

// segment is one of TCP, in one direction.
type segment struct {
	up       bool // from the client
	seq      uint32
	size     int
	syn, fin bool
}

// trouble is what befalls one packet of a client's link.
type trouble struct {
	name string
	lost bool
	now  int // how often it arrives at once
	// behind is after how many more packets of its direction it arrives once more, or 0.
	behind int
}

var troubles = []trouble{{"is lost", true, 0, 0}, {"is overtaken", false, 0, 1}, {"comes twice, and again later", false, 2, 4}}

// which is a packet of a visit: the nth of one direction, from 1, or the first FIN of it.
type which struct {
	up  bool
	nth int
}

func (w which) String() string {
	from, number := "server", "its FIN"
	if w.up {
		from = "client"
	}
	if w.nth > 0 {
		number = fmt.Sprint("packet ", w.nth)
	}
	return from + ", " + number
}

// badLink is the client's link to a server's port, which troubles one packet at a time.
type badLink struct {
	port layers.TCPPort

	mu     sync.Mutex
	which  which
	does   trouble
	met    bool
	passed map[bool]int // packets by direction
	held   map[*heldFrame]bool
	seen   map[segment]int // copies that were sent
}

type heldFrame struct {
	nstest.Frame
	behind int
}

// heldFor is how long a packet stays behind others that do not come. It is less than the shortest timeout of TCP on Linux, 200 ms.
const heldFor = 50 * time.Millisecond

// set begins a visit, one packet of which gets into trouble.
func (l *badLink) set(w which, does trouble) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.which, l.does, l.met, l.passed, l.held, l.seen = w, does, false, map[bool]int{}, map[*heldFrame]bool{}, map[segment]int{}
}

func (l *badLink) pass(f nstest.Frame) {
	tcp, _ := gopacket.NewPacket(f.Bytes, layers.LayerTypeEthernet, gopacket.NoCopy).Layer(layers.LayerTypeTCP).(*layers.TCP)
	if tcp == nil || tcp.SrcPort != l.port && tcp.DstPort != l.port {
		f.Arrive()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(tcp.Payload) > 0 || tcp.SYN || tcp.FIN {
		l.seen[segment{f.FromA, tcp.Seq, len(tcp.Payload), tcp.SYN, tcp.FIN}]++
	}
	l.passed[f.FromA]++
	if n := l.which.nth; !l.met && f.FromA == l.which.up && (n > 0 && l.passed[f.FromA] == n || n == 0 && tcp.FIN) {
		l.met = true
		for range l.does.now {
			f.Arrive()
		}
		if l.does.behind > 0 {
			h := &heldFrame{f, l.does.behind}
			l.held[h] = true
			time.AfterFunc(heldFor, func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.release(h)
			})
		}
		return
	}
	f.Arrive()
	for h := range l.held {
		if h.FromA != f.FromA {
			continue
		}
		if h.behind--; h.behind == 0 {
			l.release(h)
		}
	}
}

// release lets a packet arrive that was held. l.mu is held.
func (l *badLink) release(h *heldFrame) {
	if l.held[h] {
		delete(l.held, h)
		h.Arrive()
	}
}

// result waits until all packets have arrived, and returns the segment that was sent the most often. It fails if no packet got into trouble.
func (l *badLink) result(t *testing.T) (most segment, times int, err error) {
	t.Helper()
	polltest.Await(t, "packets arrive that are held", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.held) == 0
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, n := range l.seen {
		if n > times && !(s.syn && !s.up) { // a server sends its own SYN again by its timer, and for each SYN of the client's
			most, times = s, n
		}
	}
	if !l.met {
		err = fmt.Errorf("there was no such packet, of %d and %d", l.passed[true], l.passed[false])
	}
	return most, times, err
}

// early reports whether the client's first packet of the last visit had data.
func (l *badLink) early() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.seen {
		if s.up && s.syn && s.size > 0 {
			return true
		}
	}
	return false
}

// timeouts is how often a timer of TCP sent something once more, at the client and at the machines that serve it.
func (m *moving) timeouts() (client, servers int) {
	m.t.Helper()
	for in, n := range map[nstest.Namespace]*int{m.client: &client, m.gateway: &servers, m.tenant: &servers} {
		in.Do(m.t, func() error {
			one, err := strconv.Atoi(extended(m.t, "TCPTimeouts"))
			*n += one
			return err
		})
	}
	return client, servers
}

// visitToTheEnd visits, and waits until the client's socket knows that both sides have all.
func (m *moving) visitToTheEnd() {
	m.t.Helper()
	conn, from := m.visit(m.config)
	if at := conn.LocalAddr().String(); from != at {
		m.t.Errorf("the server sees %s, and the client is %s", from, at)
	}
	m.echo(conn, 10_000)
	if err := conn.CloseWrite(); err != nil {
		m.t.Fatal(err)
	}
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
		m.t.Fatalf("the connection ends with %q, %v", rest, err)
	}
	conn.Close()
	port := netutil.AddrPort(conn.LocalAddr()).Port()
	polltest.Until(m.t, func() error {
		return m.client.Run(func() error {
			state, err := nstest.TCPState(port)
			if err == nil && state != 0 && state != unix.BPF_TCP_TIME_WAIT {
				err = fmt.Errorf("the client's socket is in state %d", state)
			}
			return err
		})
	})
}

// visitOver visits while a packet gets into trouble. A loss costs one timeout at most. The server's answer to the first packet is one that both sides
// wait for at the same time.
func (m *moving) visitOver(link *badLink, w which, does trouble) error {
	m.t.Helper()
	link.set(w, does)
	client, servers := m.timeouts()
	m.visitToTheEnd()
	s, times, err := link.result(m.t)
	client2, servers2 := m.timeouts()
	client, servers = client2-client, servers2-servers
	both := w == which{false, 1}
	if client > 1 || servers > 1 || !both && client+servers > 1 || !does.lost && client+servers > 0 {
		err = errors.Join(err, fmt.Errorf("%d timeouts of the client, and %d of the servers", client, servers))
	}
	if times > 3 { // itself, a probe that the gateway ignores while it moves the connection (RFC 8985, section 7), and a timeout
		err = errors.Join(err, fmt.Errorf("%+v was sent %d times", s, times))
	}
	if err != nil {
		err = fmt.Errorf("%v %s: %w", w, does.name, err)
	}
	return err
}

// Whichever packet of a connection that moves is lost, overtaken or copied, all bytes arrive. A loss stalls the connection for one timeout of its sender
// at most, as it does one that nobody moves, and nothing else stalls it.
func TestMoveOverABadLink(t *testing.T) {
	worlds := []struct {
		name             string
		in               places
		by               int
		direct, fastOpen bool
		short            bool // the messages of TLS, so that each is one segment
	}{
		{"bpf", places4, byBPF, false, false, false}, {"bpf, IPv6", places6, byBPF, false, false, false},
		{"nft", places4, byGateway, false, false, false}, {"nft, IPv6", places6, byGateway, false, false, false},
		{"ovs", places4, byBridge, false, false, false}, {"ovs, IPv6", places6, byBridge, false, false, false},
		{"fast open", places6, byBPF, false, true, false}, {"short messages", places4, byBPF, false, false, true},
		{"nobody moves it", places4, byGateway, true, false, false}, {"nobody moves short messages", places4, byGateway, true, false, true},
	}
	if !nstest.OwnMounts(t, fmt.Sprint("-test.parallel=", len(worlds))) { // most of the time they wait
		return
	}
	for _, c := range worlds {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			link := &badLink{port: 443}
			if c.direct {
				link.port = 4443
			}
			link.set(which{}, trouble{})
			m := newMovingOver(t, c.in, c.by, false, nil, func(t testing.TB, a, b nstest.End) { nstest.Wire(t, a, b, link.pass) })
			if c.direct {
				m.to = at(m.site, uint16(link.port))
			}
			if c.short {
				m.config.CurvePreferences, m.config.ClientSessionCache = []tls.CurveID{tls.X25519}, tls.NewLRUClientSessionCache(0)
			}
			visits := 0
			if c.fastOpen {
				m.opensFast()
				m.visitToTheEnd() // it gets a cookie
				visits++
			}
			const positions = 9
			for _, does := range troubles {
				var longest time.Duration // without the first packets, whose timeout is that of all connections
				for i := range 2 * (positions + 1) {
					w := which{i%2 == 0, i / 2}
					// Any of the processes may have been late, and not this one. What is wrong with a packet is wrong each time.
					polltest.AgainAfter(t, 0, func(int) error {
						visits++
						began := time.Now()
						err := m.visitOver(link, w, does)
						if took := time.Since(began); w.nth != 1 {
							longest = max(longest, took)
						}
						return err
					})
				}
				t.Logf("the longest visit in which a packet %s: %v", does.name, longest)
			}
			if c.direct {
				visits = 0
			}
			m.expect(moved(visits, false))
			if early := link.early(); early != c.fastOpen {
				t.Errorf("the client sent data with its first packet: %v", early)
			}
		})
	}
}
