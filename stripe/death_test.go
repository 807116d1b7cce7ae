package stripe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/identity"
	"heddle/internal/segment"
)

// safeBuffer is a log or key log that several write to.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// watched reads all from c, and gives the longest time that nothing came.
func watched(c *Conn, from time.Time) (got []byte, longest time.Duration, err error) {
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		longest = max(longest, time.Since(from))
		from = time.Now()
		got = append(got, b[:n]...)
		if err == io.EOF {
			return got, longest, nil
		} else if err != nil {
			return got, longest, err
		}
	}
}

const second = time.Second

// Each path may die in each way, in the middle of a transfer; all of it arrives, and a dead path's part by that path.
func TestADeadPathComesBack(t *testing.T) {
	kills := map[string]func(*road){
		"reset": func(r *road) { r.reset() },
		"silence, then back": func(r *road) {
			r.stall()
			time.AfterFunc(9*second, r.revive)
		},
		"half a segment, then an end": func(r *road) {
			up, _ := r.last()
			up.set(func() {
				if len(up.flights) > 0 {
					up.flights = up.flights[:1]
					up.flights[0].data = up.flights[0].data[:len(up.flights[0].data)/2+1]
				}
				up.end = io.EOF
			})
		},
		"changed bytes": func(r *road) {
			up, _ := r.last()
			up.set(func() { up.bad = up.carried + 1 })
		},
	}
	for name, kill := range kills {
		for _, shares := range []string{"none", "3of3"} {
			t.Run(name+"/"+shares, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, ListenOptions{}, &road{delay: 10 * ms, rate: 2e6}, &road{delay: 20 * ms, rate: 2e6}, &road{delay: 30 * ms, rate: 2e6})
					var log safeBuffer
					o := w.options()
					o.Shares = shares
					o.Log = slog.New(slog.NewTextHandler(&log, nil))
					client, server := w.open(o)
					for i, at := range []time.Duration{200, 350, 500} {
						time.AfterFunc(at*ms, func() { kill(w.roads[i]) })
					}
					both(t, client, server, noise(1, 4<<20), noise(2, 1<<20), 50_000)
					s := client.Status()
					for i, p := range s.Paths {
						if p.Joins < 2 {
							t.Errorf("path %d joined %d times", i, p.Joins)
						}
						if shares == "none" && (p.Up.Share < .3333 || p.Up.Share > .3334) {
							t.Errorf("path %d carried %.4f", i, p.Up.Share)
						}
						if !strings.Contains(log.String(), "msg=\"path down\" session="+s.Session+" path="+p.Name) {
							t.Errorf("path %d is not named", i)
						}
					}
					if strings.HasPrefix(name, "changed") && !strings.Contains(log.String(), "changed on the way") && !strings.Contains(log.String(), "bad record MAC") {
						t.Errorf("the log does not say why:\n%s", log.String())
					}
					closeBoth(t, client, server)
					w.listener.Close()
				})
			})
		}
	}
}

// With shares to spare a path may die without a pause, in whatever way.
func TestSharesToSpareCarryOn(t *testing.T) {
	for name, kill := range map[string]func(*road){"reset": (*road).reset, "silence": (*road).stall} {
		for dead := range 3 {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, ListenOptions{}, &road{delay: 10 * ms, rate: 2e6}, &road{delay: 20 * ms, rate: 2e6}, &road{delay: 30 * ms, rate: 2e6})
				o := w.options()
				o.Shares = "2of3"
				client, server := w.open(o)
				time.AfterFunc(300*ms, func() {
					w.roads[dead].mu.Lock()
					w.roads[dead].dead = true
					w.roads[dead].mu.Unlock()
					kill(w.roads[dead])
				})
				want := noise(1, 4<<20)
				start := time.Now()
				go func() { _ = send(client, want, 64<<10) }()
				got, longest, err := watched(server, start.Add(100*ms))
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s of %d: %d bytes, %v", name, dead, len(got), err)
				}
				t.Logf("%s of %d: no pause above %v", name, dead, longest)
				if longest > 2*60*ms {
					t.Errorf("%s of %d: a pause of %v, and two round trips are 120ms", name, dead, longest)
				}
				closeBoth(t, client, server)
				w.listener.Close()
			})
		}
	}
}

// Without leave to degrade nothing moves to another path, and the session ends in time and says why.
func TestItStopsRatherThanMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{Patience: 20 * second}, &road{delay: 10 * ms, rate: 1e6}, &road{delay: 10 * ms, rate: 1e6})
		o := w.options()
		o.Patience = 20 * second
		client, server := w.open(o)
		time.AfterFunc(300*ms, w.roads[1].stall)
		go func() { _ = send(client, noise(1, 2<<20), 64<<10) }()
		n, err := io.Copy(io.Discard, server)
		if err == nil || n >= 2<<20 {
			t.Errorf("%d bytes, %v", n, err)
		}
		synctest.Wait()
		s := client.Status()
		up := s.Paths[0].Up.Bytes - s.Paths[1].Up.Bytes
		if s.Paths[0].Up.Bytes > s.Paths[1].Up.Bytes && up > 2*aheadOf {
			t.Errorf("one path carried %d bytes more than the other", up)
		}
		if err := client.Close(); err == nil || !strings.Contains(err.Error(), "1 of 2 paths are up") {
			t.Errorf("%v", err)
		}
		if err := server.Close(); err == nil {
			t.Error("the other side takes it for whole")
		}
		if took := time.Since(client.since); took > 40*second {
			t.Errorf("it took %v", took)
		}
		w.listener.Close()
	})
}

func TestDegradeMovesWhatWasUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{}, &road{delay: 10 * ms, rate: 1e6}, &road{delay: 10 * ms, rate: 1e6})
		o := w.options()
		o.Degrade = true
		client, server := w.open(o)
		time.AfterFunc(300*ms, func() {
			w.roads[1].mu.Lock()
			w.roads[1].dead = true
			w.roads[1].mu.Unlock()
			w.roads[1].reset()
		})
		both(t, client, server, noise(1, 2<<20), noise(2, 1<<20), 64<<10)
		closeBoth(t, client, server)
		w.listener.Close()
	})
}

func TestDegradeBeginsWithWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{}, &road{delay: 10 * ms}, &road{delay: 10 * ms})
		w.roads[1].refused = errors.New("no such network")
		o := w.options()
		o.Patience = 3 * second
		if _, err := Dial(context.Background(), o); err == nil || !strings.Contains(err.Error(), "1 (no such network)") {
			t.Errorf("without leave: %v", err)
		}
		o.Degrade = true
		client, err := Dial(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = send(client, noise(1, 1000), 1000) }()
		server, err := w.listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(server); err != nil || len(got) != 1000 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		closeBoth(t, client, server)
		w.listener.Close()
	})
}

// A path that carries next to nothing is dropped and named, on whichever side it is noticed first.
func TestASlowPathIsNamed(t *testing.T) {
	for _, rate := range []float64{500, 3500} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, ListenOptions{}, &road{delay: 10 * ms, rate: 1e6}, &road{delay: 10 * ms, rate: 1e6})
			var log safeBuffer
			o := w.options()
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			client, server := w.open(o)
			time.AfterFunc(500*ms, func() {
				up, _ := w.roads[1].last()
				up.set(func() { up.rate = rate })
			})
			both(t, client, server, noise(1, 4<<20), nil, 64<<10)
			if text := log.String(); !strings.Contains(text, "path=1 why=\"") || !strings.Contains(text, "too slow") {
				t.Errorf("%v bytes a second are not named:\n%s", rate, text)
			}
			closeBoth(t, client, server)
			w.listener.Close()
		})
	}
}

func TestNobodyButThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{Service: func(_ identity.Key, name string) error {
			if name != "test" {
				return errors.New("there is no service " + name)
			}
			return nil
		}}, &road{delay: 10 * ms}, &road{delay: 10 * ms})
		o := w.options()
		o.Patience = 2 * second
		other, err := identity.New()
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		wrong := o
		wrong.Peer = other.Key()
		if _, err := Dial(context.Background(), wrong); err == nil || !strings.Contains(err.Error(), "it holds the key") {
			t.Errorf("somebody else answers: %v", err)
		}
		wrong = o
		wrong.Identity = other
		if c, err := Dial(context.Background(), wrong); err == nil { // TLS 1.3 lets a client go on before it is judged
			if err = c.Wait(context.Background()); err == nil || !strings.Contains(err.Error(), "does not let this device in") {
				t.Errorf("a stranger: %v", err)
			}
		} else {
			t.Error(err)
		}
		if passed := time.Since(begin); passed > second {
			t.Errorf("what cannot be mended took %v", passed)
		}
		wrong = o
		wrong.Service = "other"
		if c, err := Dial(context.Background(), wrong); err != nil {
			t.Error(err)
		} else if err := c.Wait(context.Background()); err == nil || !strings.Contains(err.Error(), "there is no service other") {
			t.Errorf("another service: %v", err)
		}
		w.listener.Close()
		time.Sleep(20 * second)
	})
}

// What an observer of each path reads with the keys of TLS: its own segments, and none of another path's, also after one
// died.
func TestNothingMovesToAnotherObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{}, &road{delay: 10 * ms, rate: 2e6}, &road{delay: 20 * ms, rate: 2e6})
		client, server := w.open(w.options())
		seen := make([]map[uint64]bool, 2)
		for i := range seen {
			seen[i] = map[uint64]bool{}
		}
		server.mu.Lock()
		server.spy = func(member int, d segment.Data, _ []byte) { seen[member][d.Unit] = true }
		server.mu.Unlock()
		time.AfterFunc(300*ms, w.roads[0].reset)
		time.AfterFunc(500*ms, w.roads[1].reset)
		both(t, client, server, noise(1, 2<<20), nil, 64<<10)
		closeBoth(t, client, server)
		for unit := range seen[0] {
			if seen[1][unit] {
				t.Fatalf("unit %d went by both paths", unit)
			}
		}
		if len(seen[0]) < 50 || len(seen[1]) < 50 {
			t.Errorf("%d and %d units were seen", len(seen[0]), len(seen[1]))
		}
		w.listener.Close()
	})
}
