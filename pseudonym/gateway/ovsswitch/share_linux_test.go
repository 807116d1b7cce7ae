package ovsswitch

import (
	"errors"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/pseudonym/gateway/lead"
	"heddle/pseudonym/gateway/lead/leadtest"
)

// unused is how long the flows that lead the connection of a world have not been used, in seconds: the least of both.
func (o *world) unused(t *testing.T) (least int) {
	t.Helper()
	out, err := exec.Command("ovs-ofctl", "dump-flows", "unix:"+o.switches.Socket(bridge)).CombinedOutput()
	flows := regexp.MustCompile(`idle_age=(\d+), priority=40001`).FindAllSubmatch(out, -1)
	if err != nil || len(flows) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	least = 1 << 30
	for _, f := range flows {
		age, _ := strconv.Atoi(string(f[1]))
		least = min(least, age)
	}
	return least
}

func TestEachAndTouch(t *testing.T) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			o := &world{}
			w := leadtest.NewWorld(t, o.kind(t), v6)
			s := w.To.(*Switch)
			near, far := w.Moved()
			w.Talk(near, far)
			var last time.Time
			looks := func() (new bool) {
				t.Helper()
				got := leadtest.All(t, s)
				if len(got) != 1 || got[0].Client != w.At || got[0].Gateway != w.Public || got[0].Tenant != w.Inside || got[0].Last.Before(last) || got[0].Last.After(time.Now()) {
					t.Fatalf("%+v", got)
				}
				new = got[0].Last.After(last)
				last = got[0].Last
				return new
			}
			polltest.Await(t, "all packets are counted", func() bool { return !looks() && s.entries[key{w.At, w.Public}].packets > 0 })
			w.Talk(near, far)
			polltest.Await(t, "the packets are seen", looks)
			polltest.Await(t, "all packets are counted", func() bool { return !looks() })

			polltest.Await(t, "the flows are not used", func() bool { return o.unused(t) > 1 })
			for _, c := range []struct {
				tenant       netip.AddrPort
				unless       time.Duration
				has, touched bool
			}{{netip.AddrPortFrom(w.Public.Addr(), w.Inside.Port()), 0, false, false}, {w.Inside, time.Hour, true, false}, {w.Inside, 0, true, true}} {
				before, began := o.unused(t), time.Now()
				has, err := s.Touch(w.At, w.Public, c.tenant, c.unless)
				now := o.unused(t)
				if took := int(time.Since(began)/time.Second) + 1; err != nil || has != c.has || (now <= min(took, before)) != c.touched && now < before+took {
					t.Errorf("%+v: %v, %v; %d s without packets, and then %d", c, has, err, before, now)
				}
			}
			w.Talk(near, far)
			polltest.Await(t, "packets are seen after a touch", looks)

			failed := errors.New("enough")
			if err := s.Each(func(lead.Connection) error { return failed }); !errors.Is(err, failed) {
				t.Errorf("it returns %v", err)
			}
			w.Finish(near, far)
			polltest.Await(t, "the connection has ended", func() bool { return len(leadtest.All(t, s)) == 0 })
			if has, err := s.Touch(w.Public, w.At, w.Inside, 0); has || err != nil {
				t.Errorf("of an unknown connection: %v, %v", has, err)
			}
		})
	}
}
