package bft

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"heddle/lab"
)

// twoCoasts has two replicas on each side of a sea, and a client that reaches both sides by networks of its own, so that it
// can ask all replicas while they cannot ask each other:
//
//	replica 0 --+                      +-- replica 2
//	            +-- west ---sea--- east --+
//	replica 1 --+      \           /   +-- replica 3
//	                    \-- client --/
//
// Replica N is 10.74.1N.2.
func twoCoasts() lab.World {
	net4 := func(format string, args ...any) netip.Prefix {
		return netip.MustParsePrefix(fmt.Sprintf(format, args...))
	}
	w := lab.World{Name: "twocoasts", About: "two replicas on each side of a link"}
	link := func(name, a, aDevice string, aAddr netip.Prefix, b, bDevice string, bAddr netip.Prefix) {
		w.Links = append(w.Links, lab.LinkSpec{Name: name, A: lab.End{Host: a, Device: aDevice, Addrs: []netip.Prefix{aAddr}}, B: lab.End{Host: b, Device: bDevice, Addrs: []netip.Prefix{bAddr}}})
	}
	route := func(to, via netip.Prefix, device string) lab.Route {
		return lab.Route{To: to.Masked(), Via: via.Addr(), Device: device}
	}
	seaWest, seaEast := net4("10.74.1.1/24"), net4("10.74.1.2/24")
	shoreWest, shoreEast := net4("10.74.2.1/24"), net4("10.74.3.1/24")
	west := lab.HostSpec{Name: "west", Router: true}
	east := lab.HostSpec{Name: "east", Router: true}
	client := lab.HostSpec{Name: "client"}
	link("sea", "west", "sea", seaWest, "east", "sea", seaEast)
	link("shore-west", "client", "west", net4("10.74.2.2/24"), "west", "client", shoreWest)
	link("shore-east", "client", "east", net4("10.74.3.2/24"), "east", "client", shoreEast)
	for i := range 4 {
		name, router, own := fmt.Sprintf("replica%d", i), net4("10.74.1%d.1/24", i), net4("10.74.1%d.2/24", i)
		side := "west"
		if i < 2 {
			east.Routes = append(east.Routes, route(own, seaWest, "sea"))
			client.Routes = append(client.Routes, route(own, shoreWest, "west"))
		} else {
			side = "east"
			west.Routes = append(west.Routes, route(own, seaEast, "sea"))
			client.Routes = append(client.Routes, route(own, shoreEast, "east"))
		}
		link(name, name, "net", own, side, name, router)
		w.Hosts = append(w.Hosts, lab.HostSpec{Name: name, Routes: []lab.Route{route(netip.MustParsePrefix("0.0.0.0/0"), router, "net")}})
	}
	w.Hosts = append(w.Hosts, west, east, client)
	return w
}

// cut has a coast drop what is for a replica on the other one; mend sends it over the sea again.
func cut(t *testing.T, in *lab.Instance, coast string, replica int) {
	t.Helper()
	route(t, in, coast, "blackhole", fmt.Sprintf("10.74.1%d.0/24", replica))
}

func mend(t *testing.T, in *lab.Instance, coast string, replica int) {
	t.Helper()
	over := map[string]string{"west": "10.74.1.2", "east": "10.74.1.1"}
	route(t, in, coast, fmt.Sprintf("10.74.1%d.0/24", replica), "via", over[coast])
}

func route(t *testing.T, in *lab.Instance, host string, args ...string) {
	t.Helper()
	if out, err := in.Host(host).Command(t.Context(), "ip", append([]string{"route", "replace"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("ip route replace %v: %v: %s", args, err, out)
	}
}

// Two and two cannot agree on anything; three can.
func TestPartition(t *testing.T) {
	if err := lab.Supported(); errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	in, err := lab.Up(t.Context(), twoCoasts(), lab.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Down(); err != nil {
			t.Error(err)
		}
	})
	f := newFleet(t, []string{"10.74.10.2", "10.74.11.2", "10.74.12.2", "10.74.13.2"}, func(i int, program string) *exec.Cmd {
		return in.Host(fmt.Sprintf("replica%d", i)).Command(context.Background(), program)
	})
	f.dial = func(ctx context.Context, network, address string) (c net.Conn, err error) {
		inside := in.Host("client").Do(func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return nil
		})
		return c, errors.Join(err, inside)
	}
	f.startAll()
	u := f.user(30 * time.Second)
	u.mustPut("before")

	for i, coast := range []string{"east", "east", "west", "west"} {
		cut(t, in, coast, i)
	}
	hasty := f.user(silence + 2*time.Second) // long enough for the replicas to give each other up
	hasty.want = u.want
	if _, err := hasty.put("apart"); err == nil {
		t.Fatal("two and two replicas took a write")
	}
	u.unsure = append(u.unsure, hasty.unsure...)
	u.check() // two say the same as before

	begin := time.Now()
	for i, coast := range []string{"east", "east", "west"} { // nothing gets to replica 3 yet
		mend(t, in, coast, i)
	}
	u.putUntil("three", 60*time.Second)
	t.Logf("writes went on %v after three were together", time.Since(begin).Round(time.Millisecond))
	u.check()

	mend(t, in, "west", 3)
	f.caughtUp(3)
	u.mustPut("four")
	u.check()
}
