package split

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"heddle/path"
	"heddle/path/resolve/resolvetest"
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

func TestNewSessionOfARelayBeginsWhereTheServerIs(t *testing.T) {
	at, _ := resolvetest.Nameserver(t, map[uint16]string{dns.TypeA: "vpn.example. 60 IN A 127.0.0.9"})
	r := startRelay(t, netip.MustParseAddrPort("127.0.0.8:9"), nil)
	sessions := func(n int) []Status {
		client(t, r.Addr()).Write([]byte("hello"))
		for end := time.Now().Add(30 * time.Second); len(r.Status()) < n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d sessions", len(r.Status()))
			}
		}
		return r.Status()
	}
	if s := sessions(1); s[0].Server != "127.0.0.8:9" {
		t.Fatalf("the first session sends to %s", s[0].Server)
	}
	r.mu.Lock()
	for _, s := range r.sessions {
		<-s.begun
		s.session.host.Host, s.session.nameservers = "vpn.example", []netip.AddrPort{at}
		s.session.moveTo(t.Context(), s.session.lookAgain(t.Context()))
	}
	r.mu.Unlock()
	for _, s := range sessions(2) {
		if s.Server != "127.0.0.9:9" {
			t.Errorf("session %s sends to %s, and the server is at 127.0.0.9:9", s.Session, s.Server)
		}
	}
}
