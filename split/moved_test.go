package split

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/polltest"
	"heddle/path"
)

// deafPath reaches the server, and takes long to find that it reaches no nameserver.
type deafPath struct {
	*fakePath
	asked, checked atomic.Int32
}

func (p *deafPath) Open(ctx context.Context, to netip.AddrPort) (path.Flow, error) {
	if to.Port() != 53 {
		flow, err := p.fakePath.Open(ctx, to)
		return checkedFlow{flow, p}, err
	}
	p.asked.Add(1)
	select {
	case <-time.After(15 * time.Second):
		return nil, errors.New("the tunnel's server does not answer")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type checkedFlow struct {
	path.Flow
	path *deafPath
}

func (f checkedFlow) Check() error {
	f.path.checked.Add(1)
	return nil
}

func TestPathsAreLookedAfterDuringALookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []*deafPath
		f, _ := closedFake(t, 3, func(o *Options) {
			o.To, o.paths = "vpn.example:51820", map[string]path.Path{}
			for _, s := range o.Via {
				p := &deafPath{fakePath: &fakePath{name: s.Name}}
				all, o.paths[s.Name] = append(all, p), p
			}
		})
		server := fakeServer
		f.server.Store(&server)
		f.nameservers = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53"), netip.MustParseAddrPort("192.0.2.54:53")}
		if err := f.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for i := range f.Paths() {
			go func() {
				for into := make([]path.Inbound, 1); ; {
					if _, err := f.Receive(i, into); err != nil {
						return
					}
				}
			}()
		}
		for range 60 {
			f.Send(numbered(0, 1))
			time.Sleep(time.Second)
		}
		if all[0].asked.Load() == 0 {
			t.Fatal("no lookup began")
		}
		for _, p := range all {
			if n := p.checked.Load(); n < 230 {
				t.Errorf("path %s was looked after %d times in a minute", p.name, n)
			}
		}
	})
}

// A new session does not begin where another one only tried.
func TestNewSessionOfARelayBeginsWhereTheServerIsHeard(t *testing.T) {
	silent := netip.MustParseAddrPort("127.0.0.8:9")
	server, _ := echo(t)
	r := startRelay(t, silent, nil)
	first := client(t, r.Addr())
	first.Write([]byte("hello"))
	polltest.Await(t, "a session begins", func() bool { return len(r.Status()) == 1 })
	r.mu.Lock()
	for _, s := range r.sessions {
		<-s.begun
		s.session.moveTo(t.Context(), server)
	}
	r.mu.Unlock()
	if at := r.places.first(); at != silent {
		t.Errorf("a new session would begin at %v, where nothing was heard", at)
	}
	polltest.Await(t, "the server is heard", func() bool {
		first.Write([]byte("hello"))
		return r.places.first() == server
	})
	client(t, r.Addr()).Write([]byte("hello"))
	polltest.Await(t, "a second session begins", func() bool { return len(r.Status()) == 2 })
	for _, s := range r.Status() {
		if s.Server != server.String() {
			t.Errorf("session %s sends to %s, and the server is at %v", s.Session, s.Server, server)
		}
	}
}
