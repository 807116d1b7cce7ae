package bpfswitch

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/bpf"
	"heddle/internal/errhint"
	"heddle/internal/nstest"
	"heddle/pseudonym/gateway/lead"
	"heddle/pseudonym/gateway/lead/leadtest"
)

func TestDirect(t *testing.T) {
	if nstest.OwnMounts(t) {
		leadtest.RunDirect(t, kindOf)
	}
}

// age lets the last packet of a connection that is led directly be older.
func age(t *testing.T, w *leadtest.World, by time.Duration) {
	t.Helper()
	s, k, d := w.To.(*Switch), keyOf(w.At, w.Public), leadDirect{}
	err := s.direct.Lookup(&k, &d)
	d.Last -= uint64(by)
	if err = errors.Join(err, s.direct.Put(&k, &d)); err != nil {
		t.Fatal(err)
	}
}

// An entry lasts while the client's packets come by, which are all that the switch sees, and others can keep it.
func TestDirectEntries(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	w := leadtest.NewDirectWorld(t, kindOf(t), false)
	s := w.To.(*Switch)
	near, far := w.Moved()
	age(t, w, time.Minute)
	before := time.Now()
	w.Talk(far, near)
	all := leadtest.All(t, s)
	if want := (lead.Connection{Client: w.At, Gateway: w.Public, Tenant: w.Inside, Direct: true}); len(all) != 1 || all[0].Last.Before(before.Add(-time.Second)) {
		t.Fatalf("%+v", all)
	} else if want.Last = all[0].Last; all[0] != want {
		t.Fatalf("%+v", all)
	}
	for _, c := range []struct {
		tenant   netip.AddrPort
		unless   time.Duration
		has, now bool
	}{{w.Public, 0, false, false}, {w.Inside, lead.Idle, true, false}, {w.Inside, 0, true, true}} {
		age(t, w, time.Minute)
		if has, err := s.Touch(w.At, w.Public, c.tenant, c.unless); err != nil || has != c.has {
			t.Errorf("%+v: %v, %v", c, has, err)
		}
		if now := time.Since(leadtest.All(t, s)[0].Last) < time.Minute; now != c.now {
			t.Errorf("%+v: the last packet was now: %v", c, now)
		}
	}
	if err := s.sweep(later(lead.Idle - time.Minute)); err != nil {
		t.Fatal(err)
	}
	w.Talk(near, far)
	age(t, w, lead.Idle)
	if _, err := near.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) { // the gateway knows no such connection
		t.Errorf("the client reads %v", err)
	}
	if err := s.sweep(bpf.Monotonic()); err != nil {
		t.Fatal(err)
	}
	want(t, w, map[string]bool{"direct": false})
}

// A connection is led in one way: the last one.
func TestDirectOrNot(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	w := leadtest.NewDirectWorld(t, kindOf(t), false)
	s := w.To.(*Switch)
	for _, direct := range []bool{true, false, true} {
		w.Gateway.Do(t, func() error {
			if direct {
				return s.LeadDirect(w.At, w.Public, w.Inside)
			}
			return s.Lead(w.At, w.Public, w.Inside)
		})
		want(t, w, map[string]bool{"direct": direct, "to": !direct})
	}
}

// A switch leads directly only where packets can pass as they are.
func TestDirectRefusals(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			w := leadtest.NewWorld(t, kindOf(t), v6)
			s := w.To.(*Switch)
			neighbour := netip.MustParseAddrPort("10.9.2.2:443")
			if v6 {
				neighbour = netip.MustParseAddrPort("[fd0a::2]:443")
			}
			says := func(tenant netip.AddrPort, want string) {
				t.Helper()
				w.Gateway.Do(t, func() error {
					err := s.LeadDirect(w.At, w.Public, tenant)
					if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error()+"; "+errhint.Of(err), want) {
						t.Errorf("%v: %v; %s", tenant, err, errhint.Of(err))
					}
					return nil
				})
			}
			says(w.Inside, "a router is between")
			says(w.Public, "is no other machine")
			says(netip.AddrPortFrom(neighbour.Addr(), 444), "cannot be that of")
			w.Gateway.Do(t, func() error {
				if CheckDirect(w.Inside.Addr()) == nil {
					t.Error("a machine behind a router can answer")
				}
				return CheckDirect(neighbour.Addr())
			})
			want(t, w, map[string]bool{"direct": false})
			says(neighbour, "")
			past := netlink.Route{Dst: netlink.NewIPNet(neighbour.Addr().AsSlice()), Gw: neighbour.Addr().Next().AsSlice()}
			w.Gateway.Do(t, func() error { return netlink.RouteAdd(&past) })
			says(neighbour, "a router is between")
			w.Gateway.Do(t, func() error { return netlink.RouteDel(&past) })
			says(neighbour, "")
			w.Gateway.Do(t, func() error {
				site, err := netlink.LinkByName("site")
				if err == nil {
					err = netlink.LinkSetMTU(site, 1400)
				}
				return err
			})
			says(neighbour, "ip link set site mtu 1500")
		})
	}
}
