package split

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"heddle/internal/polltest"
	"heddle/path"
	"heddle/path/resolve/resolvetest"
)

func TestLostServerIsFoundAtItsNewAddress(t *testing.T) {
	at, _ := resolvetest.Nameserver(t, map[uint16]string{dns.TypeA: "vpn.example. 60 IN A 127.0.0.9"})
	f := lostServer(t, netip.MustParseAddrPort("127.0.0.8:51820"), 51820, at)
	openFake(t, f)
	f.Send(numbered(0, 1))
	polltest.Await(t, "the server is at its new address", func() bool { return f.Status("relay").Server == "127.0.0.9:51820" })
}

// lostServer makes a session over two source addresses that has not heard its server, vpn.example at this port, for a minute.
func lostServer(t *testing.T, old netip.AddrPort, port uint16, nameserver netip.AddrPort) *Session {
	t.Helper()
	f, err := NewSession(Options{Session: "test", To: fmt.Sprintf("vpn.example:%d", port), Log: slog.New(slog.DiscardHandler), Via: loopbackPaths(2)})
	if err != nil {
		t.Fatal(err)
	}
	f.server.Store(&old)
	f.nameservers = []netip.AddrPort{nameserver}
	f.now = func() time.Time { return time.Now().Add(time.Minute) }
	return f
}

// A server that is not heard is looked up again, but no more than once in a while: each lookup tells a network its name.
func TestLostServerIsLookedUpOnceInAWhile(t *testing.T) {
	for name, c := range map[string]struct {
		sends, answers bool
		want           int // lookups in 65 s
	}{"not heard": {true, false, 3}, "heard": {true, true, 0}, "nothing is sent": {false, false, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, paths := closedFake(t, 1, func(o *Options) { o.To = "vpn.example:51820" })
				server := fakeServer
				f.server.Store(&server)
				f.nameservers = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53")}
				if err := f.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				go func() {
					for into := make([]path.Inbound, 1); ; {
						if _, err := f.Receive(0, into); err != nil {
							return
						}
					}
				}()
				lookups := 0
				for range 65 {
					if c.sends {
						f.Send(numbered(0, 1))
					}
					if c.answers {
						paths[0].put(fakeServer, []byte("answer"))
					}
					time.Sleep(time.Second)
					for _, d := range paths[0].take() {
						var m dns.Msg
						if len(d) > 4 && m.Unpack(d) == nil && m.Question[0].Qtype == dns.TypeA {
							lookups++
						}
					}
				}
				f.Close()
				if lookups != c.want {
					t.Errorf("%d lookups in 65 s, want %d", lookups, c.want)
				}
			})
		})
	}
}
