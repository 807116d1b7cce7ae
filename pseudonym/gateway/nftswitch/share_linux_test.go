package nftswitch

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/pseudonym/gateway/lead"
	"heddle/pseudonym/gateway/lead/leadtest"
)

// both runs a test with IPv4 and IPv6.
func both(t *testing.T, test func(*testing.T, *leadtest.World, *Switch)) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			w := leadtest.NewWorld(t, kind, v6)
			test(t, w, w.To.(*Switch))
		})
	}
}

func TestEachAndTouch(t *testing.T) {
	both(t, func(t *testing.T, w *leadtest.World, s *Switch) {
		before := time.Now().Add(-time.Second) // the kernel counts in ticks
		near, far := w.Moved()
		w.Talk(near, far)
		if got := leadtest.All(t, s); len(got) != 1 || got[0].Client != w.At || got[0].Gateway != w.Public || got[0].Tenant != w.Inside || got[0].Last.Before(before) || got[0].Last.After(time.Now()) {
			t.Errorf("%+v", got)
		}
		other := netip.AddrPortFrom(w.Public.Addr(), w.Inside.Port())
		for _, c := range []struct {
			tenant  netip.AddrPort
			unless  time.Duration
			has, at bool // now
		}{{other, 0, false, false}, {w.Inside, lead.Idle, true, false}, {w.Inside, time.Minute, true, true}, {w.Inside, 0, true, true}} {
			entries := s.sets[w.V6].entries(w.At, w.Public, w.Inside)
			err := s.changes.commit(func() {
				for i, e := range entries {
					s.changes.remove(e.set, e.key)
					s.changes.add(e.set, e.key, e.value, lead.Idle-2*time.Minute, i > 0)
				}
			})
			got, other := s.Touch(w.At, w.Public, c.tenant, c.unless)
			if err := errors.Join(err, other); err != nil || got != c.has {
				t.Errorf("%+v: %v, %v", c, got, err)
			}
			for _, e := range entries {
				now, has, err := s.changes.get(e.set, e.key)
				if err != nil || !has || !bytes.Equal(now.value, e.value) || (now.expires > lead.Idle-time.Minute) != c.at {
					t.Errorf("%+v: %s has %+v, %v", c, e.set.Name, now, err)
				}
			}
		}
		w.Talk(near, far)
		w.Finish(near, far)
		if got := leadtest.All(t, s); len(got) != 0 {
			t.Errorf("%+v have ended", got)
		}
		if got, err := s.Touch(w.Public, w.At, w.Inside, 0); got || err != nil {
			t.Errorf("of an unknown connection: %v, %v", got, err)
		}
	})
}

// A client uses its port again for another tenant, and this switch did not see how the old connection ended, or only half of that.
func TestLeadsToAnotherTenant(t *testing.T) {
	both(t, func(t *testing.T, w *leadtest.World, s *Switch) {
		other := netip.AddrPortFrom(w.Inside.Addr().Next(), w.Inside.Port())
		near, far := w.Moved()
		w.Talk(near, far)
		w.Finish(near, far)
		for range 2 {
			if err := s.Lead(w.At, w.Public, other); err != nil {
				t.Fatal(err)
			}
			if got := leadtest.All(t, s); len(got) != 1 || got[0].Tenant != other {
				t.Errorf("it leads %+v", got)
			}
		}
		if has, err := s.Touch(w.At, w.Public, w.Inside, 0); has || err != nil {
			t.Errorf("it still leads to the first tenant, %v", err)
		}
		for _, m := range s.sets[w.V6].marks(w.At, w.Public) {
			if _, has, err := s.changes.get(m.set, m.key); has || err != nil {
				t.Errorf("%s has the old connection, %v", m.set.Name, err)
			}
		}
	})
}

// A set comes in several answers. After an error the next look finds all again.
func TestEachOfMany(t *testing.T) {
	w := leadtest.NewWorld(t, kind, false)
	s := w.To.(*Switch)
	var want []netip.AddrPort
	for i := range 5000 {
		client := netip.AddrPortFrom(w.At.Addr(), uint16(10_000+i))
		want = append(want, client)
		if err := s.Lead(client, w.Public, w.Inside); err != nil {
			t.Fatal(err)
		}
	}
	failed := errors.New("enough")
	w.Gateway.Do(t, func() error {
		if err := s.Each(func(lead.Connection) error { return failed }); !errors.Is(err, failed) {
			t.Errorf("it returns %v", err)
		}
		return nil
	})
	// While the kernel resizes the set, it may give one element twice and leave one out. Who shares connections reads them again and again.
	polltest.Await(t, "all connections", func() bool {
		var got []netip.AddrPort
		for _, c := range leadtest.All(t, s) {
			got = append(got, c.Client)
		}
		slices.SortFunc(got, netip.AddrPort.Compare)
		return slices.Equal(got, want)
	})
}
