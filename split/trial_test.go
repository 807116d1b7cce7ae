package split

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/path"
	"heddle/schedule"
)

// Kinds of servers.
const (
	lastHeard = "last"   // it answers by the path of the last datagram that arrived, as WireGuard does
	newest    = "newest" // it answers by the path of the newest datagram, as QUIC does
	asked     = "asked"  // as lastHeard, and the session has the keys to ask it
)

// remote is a server at the far end of paths in memory, which have delays and may be dead.
type remote struct {
	t       *testing.T
	session *Session
	paths   []*fakePath
	delays  []time.Duration
	kind    string

	mu      sync.Mutex
	dead    []bool
	at      int // the path by which it answers; -1 before the first datagram
	highest uint32
	next    uint32
	arrived map[uint32]bool
}

// Kinds of datagrams that the client sends: the server answers the first at once, and the second not at all.
const (
	request = 0
	ack     = 1
	inquiry = 2 // of the session's prober
)

// fakeProber asks a remote by the number of the question.
type fakeProber struct{ asked uint32 }

func (p *fakeProber) question(time.Time) ([]byte, uint32, error) {
	p.asked++
	return append(binary.BigEndian.AppendUint32(nil, p.asked), inquiry), p.asked, nil
}

func (p *fakeProber) answered(datagram []byte) (uint32, bool) {
	return binary.BigEndian.Uint32(datagram[4:]), true
}

func (p *fakeProber) cookie(reply, message []byte) ([]byte, bool) { return nil, false }

func (p *fakeProber) isQuestion([]byte) bool { return false }

// answerTo is the answer to a question, in the form of a WireGuard response.
func answerTo(number uint32) []byte {
	out := binary.LittleEndian.AppendUint32(make([]byte, 0, responseLength), responseType)
	return append(binary.BigEndian.AppendUint32(out, number), make([]byte, responseLength-8)...)
}

func newRemote(t *testing.T, kind string, change func(*Options)) *remote {
	const ms = time.Millisecond
	r := &remote{t: t, kind: kind, delays: []time.Duration{10 * ms, 15 * ms, 25 * ms}, dead: make([]bool, 3), at: -1, arrived: map[uint32]bool{}}
	r.session, r.paths = closedFake(t, 3, change)
	for i, p := range r.paths {
		p.carry = func(datagrams [][]byte) {
			for _, d := range datagrams {
				number := binary.BigEndian.Uint32(d)
				r.deliver(i, func() { r.receive(i, number, d[4]) })
			}
			p.sent = nil
		}
	}
	if kind == asked {
		r.session.setProber(&fakeProber{})
	}
	openFake(t, r.session)
	return r
}

// deliver carries something over a path, unless that is dead then.
func (r *remote) deliver(i int, arrive func()) {
	if !r.isDead(i) {
		time.AfterFunc(r.delays[i], func() {
			if !r.isDead(i) {
				arrive()
			}
		})
	}
}

func (r *remote) isDead(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead[i]
}

func (r *remote) kill(i int, dead bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead[i] = dead
}

func (r *remote) receive(i int, number uint32, kind byte) {
	r.mu.Lock()
	if kind != inquiry {
		r.arrived[number] = true
	}
	if r.kind != newest || number >= r.highest {
		r.at, r.highest = i, number
	}
	r.mu.Unlock()
	switch kind {
	case request:
		r.answer([]byte("answer"))
	case inquiry:
		r.answer(answerTo(number))
	}
}

// answer sends a datagram by the path that the server knows at that time.
func (r *remote) answer(datagram []byte) {
	r.mu.Lock()
	at := r.at
	r.mu.Unlock()
	if at >= 0 {
		r.deliver(at, func() { r.paths[at].put(fakeServer, datagram) })
	}
}

func (r *remote) send(kind byte) {
	r.next++
	r.session.Send([][]byte{append(binary.BigEndian.AppendUint32(nil, r.next), kind)})
}

// load is what client and server do in one millisecond of a session. It returns the milliseconds until they do something again.
type load func(r *remote, ms int) int

var loads = map[string]load{
	"idle": func(r *remote, ms int) int {
		if ms%250 == 0 {
			r.send(request)
		}
		return 250 - ms%250
	},
	"bursty": func(r *remote, ms int) int { // as a download with a limited rate
		switch at := ms % 400; {
		case at == 0:
			r.send(request)
		case at > 15 && at < 60:
			r.answer([]byte("data"))
			if at%2 == 0 {
				r.send(ack)
			}
		case at >= 60:
			return 400 - at
		}
		return 1
	},
	"at once": func(r *remote, ms int) int { // a burst that the server sends before the first of it is acknowledged
		switch at := ms % 300; {
		case at < 10:
			for range 7 {
				r.answer([]byte("data"))
			}
		case at > 25 && at <= 60:
			r.send(ack)
		case at > 60:
			return 300 - at
		}
		return 1
	},
	"full": func(r *remote, ms int) int {
		r.answer([]byte("data"))
		if ms%4 == 0 {
			r.send(ack)
		}
		return 2
	},
}

// run carries a load for a time, and calls look every 10 ms.
func (r *remote) run(load load, length time.Duration, look func(after time.Duration)) {
	next := 0
	for ms := 0; ms < int(length/time.Millisecond); {
		if ms == next {
			next += load(r, ms)
		}
		if ms%10 == 0 {
			look(time.Duration(ms) * time.Millisecond)
		}
		step := min(next, ms-ms%10+10) - ms
		time.Sleep(time.Duration(step) * time.Millisecond)
		ms += step
	}
}

func (r *remote) state(i int) path.State {
	s, _ := r.session.members[i].Health.State()
	return s
}

// eachLoad runs a test for each period, load and kind of server.
func eachLoad(t *testing.T, run func(*testing.T, *remote, load), weights ...float64) {
	for _, period := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond} {
		for name, load := range loads {
			for _, kind := range []string{lastHeard, newest, asked} {
				t.Run(fmt.Sprintf("%v/%s/%s", period, name, kind), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						seed := uint64(7)
						run(t, newRemote(t, kind, func(o *Options) {
							o.Schedule = schedule.Config{Name: "weighted", Every: schedule.Every{Period: period}, Weights: weights, Seed: &seed}
						}), load)
					})
				})
			}
		}
	}
}

func TestHealthyPathThatCarriesLittleIsNotSilent(t *testing.T) {
	eachLoad(t, func(t *testing.T, r *remote, load load) {
		r.run(load, 90*time.Second, func(after time.Duration) {
			for i := range r.paths {
				if r.state(i) == path.Silent {
					t.Fatalf("after %v path %d, which is healthy, is silent", after, i)
				}
			}
		})
		if share := r.session.Status("relay").Paths[2].Up.Share; share > .01 {
			t.Errorf("the path carried %.4f of the session, much more than the schedule drew for it", share)
		}
	}, .152, .844, .004)
}

func TestPathThatCameBackIsUsedAgain(t *testing.T) {
	eachLoad(t, func(t *testing.T, r *remote, load load) {
		const died, back, end = 3 * time.Second, 20 * time.Second, 60 * time.Second
		// A server that sends at once answers nothing in most bursts. So a healthy path may be suspect until the next trial.
		doubts, up := strings.Contains(t.Name(), "/at_once/"), back
		r.run(load, end, func(after time.Duration) {
			switch after {
			case died:
				r.kill(1, true)
			case back:
				if s := r.state(1); s != path.Silent {
					t.Errorf("a dead path is %s", s)
				}
				r.kill(1, false)
			}
			s := r.state(1)
			if s == path.Up && doubts && after > back {
				up = after
			}
			if after >= up+2*time.Second && s != path.Up {
				t.Fatalf("%v after it came back the path is %s", after-back, s)
			}
		})
	}, .3, .4, .3)
}

func TestNothingIsLostOnASilentPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t, lastHeard, nil)
		r.run(loads["idle"], 5*time.Second, func(time.Duration) {})
		r.kill(1, true)
		r.run(loads["idle"], 10*time.Second, func(time.Duration) {})
		if s := r.state(1); s != path.Silent {
			t.Fatalf("the dead path is %s", s)
		}
		first := r.next + 1
		r.run(loads["idle"], 60*time.Second, func(time.Duration) {})
		time.Sleep(time.Second)
		r.mu.Lock()
		defer r.mu.Unlock()
		for n := first; n <= r.next; n++ {
			if !r.arrived[n] {
				t.Fatalf("datagram %d of %d to %d, sent while a path was silent, did not arrive", n, first, r.next)
			}
		}
	})
}

// A program that waits for an answer, as TCP does, repeats what is lost more and more seldom: each time a trial may be due.
func TestTrialsLetAWaitingProgramThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t, lastHeard, func(o *Options) {
			o.Schedule = schedule.Config{Name: "round-robin", Every: schedule.Every{Packets: 1}}
		})
		r.run(loads["idle"], 5*time.Second, func(time.Duration) {})
		r.kill(1, true)
		first := r.next + 1
		for range 12 {
			r.send(request)
			time.Sleep(trialEvery + 100*time.Millisecond)
		}
		if s := r.state(1); s != path.Silent {
			t.Errorf("the dead path is %s", s)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for n := first; n < r.next; n++ {
			if !r.arrived[n] && !r.arrived[n+1] {
				t.Fatalf("datagrams %d and %d of %d to %d did not arrive", n, n+1, first, r.next)
			}
		}
	})
}

// The program of a stopped session sends seldom.
func TestStoppedSessionFindsThePathAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t, lastHeard, func(o *Options) {
			o.MinPaths, o.Schedule = 3, schedule.Config{Name: "round-robin", Every: schedule.Every{Packets: 1}}
		})
		r.run(loads["idle"], 3*time.Second, func(time.Duration) {})
		r.kill(1, true)
		r.run(loads["idle"], 10*time.Second, func(time.Duration) {})
		if s := r.session.Status("relay"); s.State != "stopped" {
			t.Fatalf("without the path the session is %s", s.State)
		}
		seldom := func(r *remote, ms int) int {
			r.send(request)
			return 5000
		}
		before := r.session.Status("relay")
		r.run(seldom, 12*time.Second, func(time.Duration) {})
		after := r.session.Status("relay")
		for _, i := range []int{0, 2} {
			if n := after.Paths[i].Up.Packets - before.Paths[i].Up.Packets; n > 0 {
				t.Errorf("the stopped session sent %d datagrams by path %d, which works", n, i)
			}
		}
		r.kill(1, false)
		r.run(seldom, 2*time.Second, func(time.Duration) {})
		if s := r.session.Status("relay"); s.State != "running" {
			t.Errorf("2 s after the path came back the session is %s: %s", s.State, s.Why)
		}
	})
}

// A long header of a stopped session waits for the path that a rule names.
func TestTrialsKeepRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t, lastHeard, func(o *Options) {
			o.MinPaths, o.Rules = 3, []Rule{{When{Handshake: true}, "a"}}
		})
		r.run(loads["idle"], 3*time.Second, func(time.Duration) {})
		r.kill(1, true)
		r.run(loads["full"], 10*time.Second, func(time.Duration) {})
		if s := r.session.Status("relay"); s.State != "stopped" {
			t.Fatalf("without the path the session is %s", s.State)
		}
		time.Sleep(2 * suspectMatters)
		before := r.session.Status("relay").Paths[1].Up.Packets
		r.run(func(r *remote, ms int) int {
			r.session.Send([][]byte{{0xc0, 0, 0, 0, 1, 8}})
			return 1
		}, 5*time.Second, func(time.Duration) {})
		if after := r.session.Status("relay").Paths[1].Up.Packets; after != before {
			t.Errorf("%d long headers were tried on the silent path", after-before)
		}
	})
}

func TestPathThatIsNeverDrawnIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t, newest, func(o *Options) {
			o.Schedule = schedule.Config{Name: "weighted", Every: schedule.Every{Period: 10 * time.Millisecond}, Weights: []float64{1, 1, 0}}
		})
		r.run(loads["full"], 30*time.Second, func(time.Duration) {})
		if s := r.state(2); s != path.Unproven {
			t.Errorf("a path that nothing was sent on is %s", s)
		}
	})
}
