package split

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"heddle/internal/polltest"
	"heddle/internal/wgtest"
	"heddle/path"
	"heddle/path/resolve"
	"heddle/path/resolve/resolvetest"
)

// town is where paths in memory lead: a nameserver that each network may forge, and addresses that answer or not.
type town struct {
	mu     sync.Mutex
	name   map[string]netip.AddrPort // what the name's address is, by network; absent: no answer
	alive  map[netip.AddrPort]bool
	sent   map[netip.AddrPort][]string // the networks by which datagrams of the session went there
	lookup map[string]int
}

func (w *town) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

var townNameserver = netip.MustParseAddrPort("192.0.2.53:53")

// street is one network of a town.
type street struct {
	name string
	town *town
}

func (p *street) Describe() path.Info {
	return path.Info{Name: p.name, Kind: "fake", Observer: "if:" + p.name, Ready: true}
}

func (p *street) Open(_ context.Context, to netip.AddrPort) (path.Flow, error) {
	return &streetFlow{street: p, to: to, answers: make(chan []byte, 64), done: make(chan struct{})}, nil
}

type streetFlow struct {
	*street
	to      netip.AddrPort
	answers chan []byte
	done    chan struct{}
	once    sync.Once
}

func (f *streetFlow) Send(datagrams [][]byte) (int, error) {
	f.town.mu.Lock()
	defer f.town.mu.Unlock()
	for _, d := range datagrams {
		answer := d
		if f.to == townNameserver {
			answer = f.resolve(d)
		} else {
			f.town.sent[f.to] = append(f.town.sent[f.to], f.name)
			if !f.town.alive[f.to] {
				continue
			}
		}
		if answer != nil {
			f.answers <- answer
		}
	}
	return len(datagrams), nil
}

// resolve is the answer to a question. f.town.mu is held.
func (f *streetFlow) resolve(packed []byte) []byte {
	var question, answer dns.Msg
	at, known := f.town.name[f.name]
	if question.Unpack(packed) != nil || !known {
		return nil
	}
	f.town.lookup[f.name]++
	answer.SetReply(&question)
	if question.Question[0].Qtype == dns.TypeA {
		answer.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: question.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: at.Addr().AsSlice()}}
	}
	out, _ := answer.Pack()
	return out
}

func (f *streetFlow) Receive(into []path.Inbound) (int, error) {
	select {
	case d := <-f.answers:
		into[0] = path.Inbound{Data: d, Size: max(len(d), 1), From: f.to}
		return 1, nil
	case <-f.done:
		return 0, net.ErrClosed
	}
}

func (f *streetFlow) Close() error {
	f.once.Do(func() { close(f.done) })
	return nil
}

// inTown runs a session from oldPlace, which answers, in a town with these networks.
func inTown(t *testing.T, networks []string, change func(*Options), play func(*testing.T, *Session, *town)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &town{name: map[string]netip.AddrPort{}, alive: map[netip.AddrPort]bool{oldPlace: true}, sent: map[netip.AddrPort][]string{}, lookup: map[string]int{}}
		f, _ := closedFake(t, len(networks), func(o *Options) {
			o.To, o.paths = fmt.Sprintf("vpn.example:%d", oldPlace.Port()), map[string]path.Path{}
			for i, name := range networks {
				o.Via[i].Name = name
				o.paths[name] = &street{name, w}
				w.name[name] = oldPlace
			}
			if change != nil {
				change(o)
			}
		})
		server := oldPlace
		f.server.Store(&server)
		f.nameservers = []netip.AddrPort{townNameserver}
		openFake(t, f)
		play(t, f, w)
	})
}

// send sends a datagram each second for d.
func send(f *Session, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		f.Send(numbered(0, 1))
	}
}

// at checks where a session is.
func at(t *testing.T, f *Session, want netip.AddrPort, when string) {
	t.Helper()
	if got := f.Status("relay").Server; got != want.String() {
		t.Errorf("%s: the session sends to %s, want %v", when, got, want)
	}
}

func TestOnePathCannotMoveTheSession(t *testing.T) {
	for name, others := range map[string]bool{"the others answer": true, "the others do not answer": false} {
		t.Run(name, func(t *testing.T) {
			inTown(t, []string{"home", "lte", "office"}, func(o *Options) { o.Degrade = true }, func(t *testing.T, f *Session, w *town) {
				send(f, 10*time.Second)
				w.set(func() {
					w.name["home"], w.alive[oldPlace], w.alive[forgedPlace] = forgedPlace, false, true
					if !others {
						delete(w.name, "lte")
						delete(w.name, "office")
					}
				})
				send(f, 2*time.Minute)
				at(t, f, oldPlace, "after two minutes of lies")
				w.set(func() { w.alive[oldPlace] = true })
				send(f, time.Minute)
				w.set(func() {
					if n := len(w.sent[forgedPlace]); n > 0 {
						t.Errorf("%d datagrams went to the forged address, by %v", n, w.sent[forgedPlace])
					}
					if w.lookup["home"] == 0 {
						t.Error("the path that lies was never asked")
					}
				})
				if s := f.Status("relay"); s.State != "running" || f.group.LastHeard().Before(time.Now().Add(-5*time.Second)) {
					t.Errorf("the session does not go on: %s %s", s.State, s.Why)
				}
				if told := f.group.Warnings(); !slices.ContainsFunc(told, func(w string) bool { return strings.Contains(w, "path home gives an address") }) {
					t.Errorf("the liar is not named: %v", told)
				}
			})
		})
	}
}

func TestSessionFollowsAServerThatMovesAndGoesBack(t *testing.T) {
	inTown(t, []string{"home", "lte"}, nil, func(t *testing.T, f *Session, w *town) {
		send(f, 10*time.Second)
		say := func(a netip.AddrPort) { w.name["home"], w.name["lte"] = a, a }
		w.set(func() { say(newPlace); w.alive[oldPlace], w.alive[newPlace] = false, true })
		send(f, 45*time.Second)
		at(t, f, newPlace, "the server moved")
		w.set(func() { w.alive[oldPlace], w.alive[newPlace] = true, false })
		send(f, 45*time.Second)
		at(t, f, oldPlace, "the old address answers again")
		send(f, 5*time.Minute)
		at(t, f, oldPlace, "and goes on to answer")
	})
}

// What two paths agree on may be wrong too, as where both ask one nameserver.
func TestSessionGoesBackFromWhereNothingAnswers(t *testing.T) {
	inTown(t, []string{"home", "lte"}, nil, func(t *testing.T, f *Session, w *town) {
		send(f, 10*time.Second)
		w.set(func() {
			w.name["home"], w.name["lte"] = forgedPlace, forgedPlace
			w.alive[oldPlace] = false
		})
		send(f, 30*time.Second)
		at(t, f, forgedPlace, "both say so")
		w.set(func() { w.alive[oldPlace] = true })
		send(f, 30*time.Second)
		at(t, f, oldPlace, "nothing answers there")
	})
}

// A session that heard the server where it was before does not mislead those that begin later.
func TestSessionsOfARelayShareWhereTheServerIs(t *testing.T) {
	inTown(t, []string{"home", "lte"}, nil, func(t *testing.T, f *Session, w *town) {
		send(f, 10*time.Second)
		w.set(func() {
			w.name["home"], w.name["lte"] = newPlace, newPlace
			w.alive = map[netip.AddrPort]bool{newPlace: true}
		})
		other, err := NewSession(f.o)
		if err != nil {
			t.Fatal(err)
		}
		first := f.places.first()
		other.server.Store(&first)
		other.places, other.nameservers = f.places, f.nameservers
		openFake(t, other)
		send(other, 45*time.Second)
		at(t, other, newPlace, "the server moved")
		time.Sleep(time.Minute)
		if got := f.places.first(); got != newPlace {
			t.Errorf("a new session begins at %v", got)
		}
	})
}

// One network carries every packet of such a session, and could redirect them anyway.
func TestSessionOfOneNetworkBelievesIt(t *testing.T) {
	inTown(t, []string{"home"}, nil, func(t *testing.T, f *Session, w *town) {
		w.set(func() { w.name["home"], w.alive[oldPlace], w.alive[newPlace] = newPlace, false, true })
		send(f, 45*time.Second)
		at(t, f, newPlace, "the server moved")
	})
}

// Only one path may see the name, and one path does not decide: so nobody is asked.
func TestHiddenNameIsNotLookedUpForNothing(t *testing.T) {
	rule := func(o *Options) { o.Rules = []Rule{{When: When{Handshake: true}, Use: "lte"}} }
	inTown(t, []string{"home", "lte"}, rule, func(t *testing.T, f *Session, w *town) {
		w.set(func() { w.alive[oldPlace] = false })
		send(f, time.Minute)
		at(t, f, oldPlace, "after a minute")
		w.set(func() {
			if len(w.lookup) > 0 {
				t.Errorf("lookups: %v", w.lookup)
			}
		})
	})
}

// A WireGuard server proves that it is where its name leads before anything else goes there.
func TestWireguardServerProvesItsNewAddress(t *testing.T) {
	w := startWireguard(t, true)
	stranger, _ := echo(t)
	dead := netip.MustParseAddrPort("127.0.0.8:9")
	for name, c := range map[string]struct{ leads, want netip.AddrPort }{"the server": {w.address, w.address}, "somebody else": {stranger, dead}} {
		t.Run(name, func(t *testing.T) {
			at, _ := resolvetest.Nameserver(t, map[uint16]string{dns.TypeA: "vpn.example. 60 IN A 127.0.0.1"})
			f := lostServer(t, dead, c.leads.Port(), at)
			if _, err := NewBind(f, w.client); err != nil {
				t.Fatal(err)
			}
			openFake(t, f)
			polltest.Await(t, "the session is where it belongs", func() bool {
				return f.Status("wireguard").Server == c.want.String() && (c.want != dead || len(f.group.Warnings()) > 0)
			})
		})
	}
}

func TestWireguardSessionGoesBackWhenTheFirstAddressAnswers(t *testing.T) {
	w := startWireguard(t, true)
	first := wgtest.NewGuard(w.client.PeerPublic[:]).Front(t, w.address) // another address of the server
	f := lostServer(t, w.address, w.address.Port(), w.address)
	f.places.add(first, w.address)
	if _, err := NewBind(f, w.client); err != nil {
		t.Fatal(err)
	}
	openFake(t, f)
	polltest.Await(t, "the session goes back", func() bool {
		f.Send(numbered(0, 1))
		return f.Status("wireguard").Server == first.String()
	})
	polltest.Await(t, "it runs there", func() bool {
		s := f.Status("wireguard")
		return s.State == "running" && s.Server == first.String()
	})
}

func TestFirstPlaces(t *testing.T) {
	var (
		x, y = netip.MustParseAddrPort("192.0.2.1:51820"), netip.MustParseAddrPort("192.0.2.2:51820")
		liar = netip.MustParseAddrPort("198.51.100.9:51820")
		by   = func(name string, all ...netip.AddrPort) resolve.Answer {
			return resolve.Answer{Path: name, Witness: resolve.Witness{Observer: name}, Addresses: all}
		}
	)
	for name, c := range map[string]struct {
		answers   []resolve.Answer
		need      int
		want      []netip.AddrPort
		contested bool
	}{
		"one network lies":                 {[]resolve.Answer{by("lte", liar), by("home", x, y), by("office", x)}, 2, []netip.AddrPort{x}, false},
		"one network adds an address":      {[]resolve.Answer{by("lte", liar, x), by("home", x)}, 2, []netip.AddrPort{x}, false},
		"two networks, one lies":           {[]resolve.Answer{by("lte", liar), by("home", x)}, 2, []netip.AddrPort{liar}, true},
		"one observer lies on two paths":   {[]resolve.Answer{by("lte", liar), by("lte", liar), by("home", x)}, 2, []netip.AddrPort{liar}, true},
		"only one path gets an answer":     {[]resolve.Answer{by("lte", x)}, 2, []netip.AddrPort{x}, false},
		"all paths belong to one observer": {[]resolve.Answer{by("lte", x), by("lte", y)}, 1, []netip.AddrPort{x, y}, false},
	} {
		got, contested := firstPlaces(c.answers, c.need)
		if !slices.Equal(got, c.want) || contested != c.contested {
			t.Errorf("%s: %v, contested %v; want %v, %v", name, got, contested, c.want, c.contested)
		}
	}
}
