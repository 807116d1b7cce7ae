package resolve

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"heddle/internal/errhint"
	"heddle/path"
	"heddle/path/resolve/resolvetest"
)

// What package net asks leaves by the path, and what the hosts file says is not asked.
func TestQuestionsTakeThePath(t *testing.T) {
	at, from := resolvetest.Nameserver(t, map[uint16]string{dns.TypeA: "vpn.example. 60 IN A 192.0.2.8"})
	way, err := path.New(path.Spec{Name: "a", Kind: "src", Arg: "127.0.0.44"}, path.Options{})
	if err != nil {
		t.Fatal(err)
	}
	over := resolver(way, func(string) (netip.AddrPort, error) { return at, nil })
	got, err := over.LookupNetIP(t.Context(), "ip4", "vpn.example.")
	if err != nil || len(got) != 1 || got[0].Unmap() != netip.MustParseAddr("192.0.2.8") {
		t.Errorf("found %v, %v", got, err)
	}
	if a := (<-from).(*net.UDPAddr).AddrPort().Addr(); a.String() != "127.0.0.44" {
		t.Errorf("the question came from %v", a)
	}
	got, err = OverPath(t.Context(), way, "localhost") // of the hosts file
	if err != nil || !slices.ContainsFunc(got, netip.Addr.IsLoopback) {
		t.Errorf("localhost is %v, %v", got, err)
	}
}

// Whatever this machine's nameservers are by now, those that were saved are asked, and not all that they say is tried.
func TestSavedNameservers(t *testing.T) {
	records := "vpn.example. 60 IN A 192.0.2.1"
	for i := range mostAddresses {
		records += fmt.Sprintf("\nvpn.example. 60 IN A 192.0.2.%d", i+2)
	}
	at, from := resolvetest.Nameserver(t, map[uint16]string{dns.TypeA: records})
	way, err := path.New(path.Spec{Name: "a", Kind: "src", Arg: "127.0.0.44"}, path.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := asker([]netip.AddrPort{at})(t.Context(), way, "vpn.example")
	if err != nil || len(got) != mostAddresses || !got[0].Is4() {
		t.Fatalf("found %v, %v", got, err)
	}
	if a := (<-from).(*net.UDPAddr).AddrPort().Addr(); a.String() != "127.0.0.44" {
		t.Errorf("the question came from %v", a)
	}
}

// A nameserver on this machine asks by ways of its own, so it is not asked; those behind it are.
func TestNameserverOnThisMachine(t *testing.T) {
	behind := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53"), netip.MustParseAddrPort("192.0.2.54:53")}
	c := &chooser{behind: behind}
	var got []netip.AddrPort
	for _, text := range []string{"127.0.0.53:53", "[::1]:53", "198.51.100.1:53"} {
		at, err := c.choose(text)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, at)
	}
	if want := append(behind, netip.MustParseAddrPort("198.51.100.1:53")); !slices.Equal(got, want) {
		t.Errorf("asked are %v, not %v", got, want)
	}
	saved := &chooser{behind: behind, only: true}
	for given, want := range map[string]netip.AddrPort{"198.51.100.1:53": behind[0], "192.0.2.54:53": behind[1]} {
		if at, err := saved.choose(given); at != want || err != nil {
			t.Errorf("asked is %v in place of %s, %v", at, given, err)
		}
	}
	alone := &chooser{}
	if at, err := alone.choose("127.0.0.1:53"); err == nil || !alone.stub.Load() {
		t.Errorf("asked is %v", at)
	}
	if err := alone.explain("peer.example", "lte", errors.New("no answer")); !strings.Contains(errhint.Of(err), "write the address") {
		t.Errorf("%v: %s", err, errhint.Of(err))
	}
}

// A path that gets no answer, or gets it late, takes that of another path; its own goes before.
func TestAnswersAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNames()
		first, second := []netip.Addr{netip.MustParseAddr("192.0.2.1")}, []netip.Addr{netip.MustParseAddr("192.0.2.2")}
		failed := errors.New("no answer")
		after := func(wait time.Duration, addrs []netip.Addr, err error) func() ([]netip.Addr, error) {
			return func() ([]netip.Addr, error) {
				time.Sleep(wait)
				return addrs, err
			}
		}
		for _, c := range []struct {
			what string
			ask  func() ([]netip.Addr, error)
			want []netip.Addr
			took time.Duration
		}{
			{"nobody knows", after(ownPatience, nil, failed), nil, ownPatience},
			{"a late answer, and no other", after(2*time.Second, first, nil), first, 2 * time.Second},
			{"no answer", after(0, nil, failed), first, 0},
			{"a late answer", after(3*time.Second, second, nil), first, sharedPatience},
			{"its own", after(time.Millisecond, second, nil), second, time.Millisecond},
			{"the newest", after(0, nil, failed), second, 0},
		} {
			began := time.Now()
			got, err := n.get("peer.example", c.ask)
			if took := time.Since(began); !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) || took != c.took {
				t.Errorf("%s: %v after %v, %v", c.what, got, took, err)
			}
		}
		time.Sleep(ownPatience) // for the questions that nobody waits for
	})
}
