package node

import (
	"context"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"heddle/internal/tcptest"
	"heddle/overlay/client"
	"heddle/path"
)

// A name goes to the node as it is. What it means there is checked as an address is: a name leads nowhere else.
func TestNamesAreLookedUpAtTheNode(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	s := start(t, func(o *Options) {
		o.lookup = func(_ context.Context, _, name string) ([]netip.Addr, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, name)
			if name == "web.heddle.invalid" {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::ffff:169.254.169.254")}, nil
		}
	})
	way, err := client.Through(s.pass(s.grant(t, nil)), s.holder, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := tcptest.Serve(t, tcptest.Echo)
	to, err := path.HostPort("web.heddle.invalid", at.Port())
	if err != nil {
		t.Fatal(err)
	}
	c, err := way.Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("by name")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 7)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "by name" {
		t.Errorf("%q, %v", got, err)
	}
	to.Name = "rebound.heddle.invalid"
	if c, err := way.Dial(t.Context(), to); err == nil {
		c.Close()
		t.Error("a name leads to an address that the grant does not name")
	} else if !strings.Contains(err.Error(), "rebound.heddle.invalid") {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if strings.Join(asked, " ") != "web.heddle.invalid rebound.heddle.invalid" {
		t.Errorf("the node asked for %q", asked)
	}
}
