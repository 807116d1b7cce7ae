package group

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/path"
)

var (
	oldServer = netip.MustParseAddrPort("192.0.2.1:51820")
	newServer = netip.MustParseAddrPort("192.0.2.2:51820")
)

// slowPath opens flows after a while, as a tunnel does, or fails then.
type slowPath struct {
	name  string
	takes time.Duration

	mu     sync.Mutex
	fails  error
	back   chan struct{} // closed when it opens at once from then on; nil for never
	tries  int
	opened int // and not closed
}

func (p *slowPath) Describe() path.Info {
	return path.Info{Name: p.name, Kind: "slow", Observer: "slow:" + p.name}
}

func (p *slowPath) Open(ctx context.Context, to netip.AddrPort) (path.Flow, error) {
	p.mu.Lock()
	p.tries++
	p.mu.Unlock()
	select {
	case <-time.After(p.takes):
	case <-p.back:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fails != nil {
		return nil, p.fails
	}
	p.opened++
	return &slowFlow{path: p, to: to}, nil
}

// tried is how often it was opened.
func (p *slowPath) tried() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tries
}

type slowFlow struct {
	path *slowPath
	to   netip.AddrPort
	once sync.Once
}

func (f *slowFlow) Send(d [][]byte) (int, error)        { return len(d), nil }
func (f *slowFlow) Receive([]path.Inbound) (int, error) { return 0, net.ErrClosed }

func (f *slowFlow) Close() error {
	f.once.Do(func() {
		f.path.mu.Lock()
		defer f.path.mu.Unlock()
		f.path.opened--
	})
	return nil
}

func newGroup(t *testing.T, paths ...*slowPath) *Group {
	t.Helper()
	o := Options{Session: "test", Counted: len(paths), Paths: map[string]path.Path{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for _, p := range paths {
		o.Specs = append(o.Specs, path.Spec{Name: p.name, Kind: "slow"})
		o.Paths[p.name] = p
	}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// begin opens a group until the test ends.
func begin(t *testing.T, g *Group) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	g.Open(ctx, oldServer)
	g.changed = func() bool { return false } // whatever else happens on this machine
	t.Cleanup(func() {
		cancel()
		g.Close()
	})
	return ctx
}

func TestMemberOpensWhereItIsWantedLast(t *testing.T) {
	for name, meanwhile := range map[string]bool{"during another open": true, "once open": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &slowPath{name: "a", takes: time.Second}
				g := newGroup(t, p)
				ctx := begin(t, g)
				if meanwhile {
					time.Sleep(time.Second / 2)
				} else {
					time.Sleep(2 * time.Second)
				}
				g.Move(ctx, newServer)
				time.Sleep(3 * time.Second)
				if c := g.Members[0].Current(); c == nil || c.To != newServer {
					t.Errorf("it sends by %+v, wanted to %v", c, newServer)
				}
				if p.opened != 1 {
					t.Errorf("%d flows are open", p.opened)
				}
			})
		})
	}
}

// What was heard by a flow says nothing of the next one, and until that is open the member carries nothing.
func TestMemberIsDownWhileItIsOpenedAgain(t *testing.T) {
	for name, lose := range map[string]func(context.Context, *Group){
		"the server moved":    func(ctx context.Context, g *Group) { g.Move(ctx, newServer) },
		"the flow was closed": func(_ context.Context, g *Group) { g.Members[0].Forget(g.Members[0].Current().Flow) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, &slowPath{name: "a", takes: 2 * time.Second})
				ctx := begin(t, g)
				time.Sleep(3 * time.Second)
				g.Members[0].Health.Heard(time.Now())
				if v := g.Judge(time.Now()); !v.Enough {
					t.Fatal("what was heard is not up")
				}
				lose(ctx, g)
				synctest.Wait()
				if v := g.Judge(time.Now()); v.Enough || v.Usable[0] {
					t.Error("it counts while it is opened again")
				}
				if state, why := g.Members[0].Health.State(); state != path.Down || why != reopened {
					t.Errorf("it is %s (%s)", state, why)
				}
				g.Tend(ctx, time.Now(), g.Members[0].wanted)
				time.Sleep(3 * time.Second)
				if v := g.Judge(time.Now()); !v.Enough {
					t.Error("it does not count once it is open")
				}
			})
		})
	}
}

// A session that was taken down and up again is as healthy as before.
func TestClosedGroupKeepsItsHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, &slowPath{name: "a"})
		g.Open(t.Context(), oldServer)
		synctest.Wait()
		m := g.Members[0]
		m.Health.Heard(time.Now())
		flow := m.Current().Flow
		g.Close()
		m.Forget(flow)
		begin(t, g)
		synctest.Wait()
		if state, why := m.Health.State(); state != path.Up {
			t.Errorf("it is %s (%s)", state, why)
		}
	})
}

func TestDeadTunnelDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, good := &slowPath{name: "dead", takes: time.Hour}, &slowPath{name: "good"}
		g := newGroup(t, dead, good)
		ctx := begin(t, g)
		synctest.Wait()
		if g.Members[1].Current() == nil {
			t.Error("the other member is not open")
		}
		for range 200 {
			began := time.Now()
			g.Tend(ctx, began, oldServer)
			g.Judge(began)
			if took := time.Since(began); took > 0 {
				t.Fatalf("looking after the members took %v", took)
			}
			time.Sleep(250 * time.Millisecond)
		}
		if n := dead.tried(); n < 3 || n > 6 {
			t.Errorf("the dead tunnel was tried %d times in 50 s", n)
		}
	})
}

func TestReopeningBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &slowPath{name: "a", fails: errors.New("refused")}
		g := newGroup(t, p)
		ctx := begin(t, g)
		for range 240 { // a minute
			g.Tend(ctx, time.Now(), oldServer)
			time.Sleep(250 * time.Millisecond)
		}
		if n := p.tried(); n < 15 || n > 40 {
			t.Errorf("it was opened %d times in a minute", n)
		}
		p.mu.Lock()
		p.fails = nil
		p.mu.Unlock()
		mended := time.Now()
		for g.Members[0].Current() == nil {
			if time.Sleep(250 * time.Millisecond); time.Since(mended) > time.Minute {
				t.Fatal("it was not opened again")
			}
			g.Tend(ctx, time.Now(), oldServer)
			synctest.Wait()
		}
		if took := time.Since(mended); took > retryLongest+time.Second {
			t.Errorf("it was opened %v after it could be", took)
		}
	})
}

// Tries of a tunnel last until their time is over, so that no more time need pass between them.
func TestTunnelThatComesBackIsOpenedAtOnce(t *testing.T) {
	for after := 5 * time.Second; after < time.Minute; after += 2 * time.Second {
		synctest.Test(t, func(t *testing.T) {
			p := &slowPath{name: "a", takes: time.Hour, back: make(chan struct{})}
			g := newGroup(t, p)
			ctx := begin(t, g)
			time.AfterFunc(after, func() { close(p.back) })
			began := time.Now()
			for g.Members[0].Current() == nil && time.Since(began) < 2*time.Minute {
				g.Tend(ctx, time.Now(), oldServer)
				synctest.Wait()
				time.Sleep(50 * time.Millisecond)
			}
			if took := time.Since(began) - after; took > time.Second {
				t.Errorf("gone for %v, it was opened %v after it came back", after, took)
			}
		})
	}
}

func TestWarningsAreBoundedAndToldOnce(t *testing.T) {
	var log strings.Builder
	g := newGroup(t, &slowPath{name: "a"})
	g.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	for range 3 {
		for i := range 50 {
			g.Warn("warning %d", i)
		}
	}
	if n := strings.Count(log.String(), "warning"); len(g.Warnings()) != maxWarnings || n != maxWarnings {
		t.Errorf("%d warnings are kept, %d logged", len(g.Warnings()), n)
	}
	for i := range 2 * maxNoted {
		g.Once(string(rune('a' + i)))
	}
	if len(g.noted) > maxNoted {
		t.Errorf("%d things are noted", len(g.noted))
	}
}

func TestMinPaths(t *testing.T) {
	for _, c := range []struct {
		paths, asked, want int
		wrong              string
	}{
		{0, 0, 0, "no path was given"}, {1, 0, 1, ""}, {3, 0, 2, ""}, {3, 3, 3, ""}, {2, 3, 0, "2 paths were given"}, {2, -1, 0, "2 paths were given"},
	} {
		got, err := CheckMinPaths("test", c.paths, c.asked)
		if got != c.want || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%d of %d: %d, %v", c.asked, c.paths, got, err)
		}
	}
}
