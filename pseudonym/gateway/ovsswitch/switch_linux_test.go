package ovsswitch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/netns"
	"heddle/internal/openflow"
	"heddle/internal/openvswitch"
	"heddle/internal/ovstest"
	"heddle/internal/polltest"
	"heddle/pseudonym/gateway/lead/leadtest"
)

const bridge = "lead0"

// world is what a test has of its Open vSwitch.
type world struct {
	switches *openvswitch.Switch
	most     int
}

// prepare makes a bridge of both devices of the gateway.
func (o *world) prepare(t *testing.T) func(*leadtest.World) (network, site string) {
	return func(w *leadtest.World) (string, string) {
		w.Gateway.Do(t, func() error {
			return errors.Join(netns.ChecksumsInSoftware("net"), netns.ChecksumsInSoftware("site"))
		})
		w.InSoftware()
		o.switches = ovstest.Start(t, w.Gateway.Run)
		if err := o.switches.Bridge(bridge, "net", "site"); err != nil {
			t.Fatal(err)
		}
		return bridge, bridge
	}
}

func (o *world) options() Options { return Options{Bridge: o.switches.Socket(bridge), Most: o.most} }

func (o *world) kind(t *testing.T) leadtest.Kind {
	return leadtest.Kind{Asks: true, Prepare: o.prepare(t), New: func() (leadtest.Switch, error) { return New(o.options()) }, Remove: o.remove, Has: o.has}
}

func kindOf(t *testing.T) leadtest.Kind { return new(world).kind(t) }

// remove deletes the flows, as an operator would.
func (o *world) remove(*leadtest.World) error {
	c, err := openflow.Dial(o.options().Bridge, func(any) {})
	if err != nil {
		return err
	}
	return errors.Join(c.Change(openflow.Delete(prefix, prefixMask)), c.Close())
}

// shortened is what a flow has whose connection has ended.
const shortened = "idle_timeout=180,"

func (o *world) has(w *leadtest.World, what string) (bool, error) {
	if what == "ended" {
		return strings.Contains(o.switches.Flows(bridge), shortened), nil
	}
	s := w.To.(*Switch)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c := s.entries[key{w.At, w.Public}]; what {
	case "to":
		return c != nil, nil
	case "back":
		return s.returns[key{w.Inside, w.At}] != nil, nil
	case "finished":
		return c != nil && c.asked != nil, nil
	}
	return false, nil
}

func TestSwitch(t *testing.T) { leadtest.Run(t, kindOf) }

// lines are the bridge's flows, without what is another in each run, and without the flow by which Open vSwitch is made to look at its cache.
func (o *world) lines(t *testing.T) (lines []string) {
	t.Helper()
	cookie, mac := regexp.MustCompile(`cookie=\w+, `), regexp.MustCompile(`field:[0-9a-f:]+->eth_dst`)
	for line := range strings.Lines(o.switches.Flows(bridge)) {
		if strings.Contains(line, "hard_timeout=1,") {
			continue
		}
		lines = append(lines, mac.ReplaceAllString(cookie.ReplaceAllString(strings.TrimSpace(line), ""), "field:MAC->eth_dst"))
	}
	slices.Sort(lines)
	return lines
}

// The bridge has the flows that it is to have, and shortens the time of a connection that ends.
func TestFlows(t *testing.T) {
	o := &world{}
	w := leadtest.NewWorld(t, o.kind(t), false)
	near, far := w.Moved()
	w.Talk(near, far)
	back := func(idle string) string {
		return "idle_timeout=" + idle + ", send_flow_rem priority=40001,tcp,nw_src=10.9.1.2,nw_dst=198.51.100.2,tp_src=443,tp_dst=50000 actions=fin_timeout(idle_timeout=180),set_field:MAC->eth_dst,set_field:192.0.2.1->ip_src,mod_nw_ttl:64,NORMAL"
	}
	want := []string{
		back("600"),
		"idle_timeout=1800, send_flow_rem priority=40001,tcp,nw_src=198.51.100.2,nw_dst=192.0.2.1,tp_src=50000,tp_dst=443 actions=set_field:MAC->eth_dst,set_field:10.9.1.2->ip_dst,mod_nw_ttl:64,NORMAL",
		"priority=0 actions=NORMAL",
		"priority=40002,tcp,nw_src=10.9.1.2,nw_dst=198.51.100.2,tp_src=443,tp_dst=50000,tcp_flags=+rst actions=CONTROLLER:65535,set_field:MAC->eth_dst,set_field:192.0.2.1->ip_src,mod_nw_ttl:64,NORMAL",
		"priority=40002,tcp,nw_src=198.51.100.2,nw_dst=192.0.2.1,tp_src=50000,tp_dst=443,tcp_flags=+rst actions=CONTROLLER:65535,set_field:MAC->eth_dst,set_field:10.9.1.2->ip_dst,mod_nw_ttl:64,NORMAL",
		"priority=40003,tcp,nw_src=198.51.100.2,nw_dst=10.9.1.2,tp_src=50000,tp_dst=443,tcp_flags=+syn-ack actions=CONTROLLER:65535",
		"priority=40003,tcp,nw_src=198.51.100.2,nw_dst=192.0.2.1,tp_src=50000,tp_dst=443,tcp_flags=+syn-ack actions=CONTROLLER:65535",
		"priority=40004,icmp,nw_dst=198.51.100.2 actions=CONTROLLER:65535",
		"send_flow_rem priority=40000,tcp,nw_src=10.9.1.2,tp_src=443 actions=multipath(symmetric_l3l4,0,modulo_n,1,0,NXM_NX_REG15[0..15]),NORMAL",
		"send_flow_rem priority=40004,icmp,nw_dst=192.0.2.1,icmp_type=3 actions=CONTROLLER:65535",
	}
	o.await(t, want)
	if has, err := o.has(w, "ended"); err != nil || has {
		t.Errorf("the connection has ended: %v, %v", has, err)
	}
	w.Finish(near, far)
	o.await(t, append([]string{back("180")}, want[1:]...))
	if has, err := o.has(w, "ended"); err != nil || !has {
		t.Errorf("the connection that has ended: %v, %v", has, err)
	}
}

// await waits until the bridge has these flows, in any order.
func (o *world) await(t *testing.T, want []string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	polltest.Until(t, func() error {
		if got := o.lines(t); !slices.Equal(got, want) {
			return errors.New("the flows are\n" + strings.Join(got, "\n") + "\nwant\n" + strings.Join(want, "\n"))
		}
		return nil
	})
}

// A bridge that starts again is filled again, also by a gateway that had started again, and established connections go on.
func TestRestarts(t *testing.T) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			o := &world{}
			w := leadtest.NewWorld(t, o.kind(t), v6)
			near, far := w.Moved()
			w.Talk(near, far)
			before := o.lines(t)
			for range 2 {
				if err := o.switches.Restart(context.WithoutCancel(t.Context())); err != nil {
					t.Fatal(err)
				}
				o.await(t, before)
				w.Talk(near, far)
				if err := w.To.Close(); err != nil {
					t.Fatal(err)
				}
				w.Gateway.Do(t, func() (err error) {
					w.To, err = New(o.options())
					return err
				})
			}
			w.Finish(near, far)
			near, far = w.Moved() // the gateway knows the connection whose port is used again
			w.Talk(near, far)
		})
	}
}

// A connection that its tenant breaks off has ended, and its entries have not long.
func TestTenantBreaksOff(t *testing.T) {
	o := &world{}
	w := leadtest.NewWorld(t, o.kind(t), false)
	near, far := w.Moved()
	w.Talk(near, far)
	want, idle := o.lines(t), regexp.MustCompile("^idle_timeout=[0-9]+, send")
	for i := range want {
		want[i] = idle.ReplaceAllString(want[i], "idle_timeout=180, send")
	}
	if err := far.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	far.Close()
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client reads %v", err)
	}
	o.await(t, want)
}

// The next connection adds all flows again that an operator removed.
func TestRemovedFlows(t *testing.T) {
	o := &world{}
	w := leadtest.NewWorld(t, o.kind(t), false)
	near, far := w.Moved()
	w.Talk(near, far)
	before := o.lines(t)
	w.Finish(near, far)
	if err := o.remove(w); err != nil {
		t.Fatal(err)
	}
	s := w.To.(*Switch)
	polltest.Await(t, "the switch knows that its flows are gone", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.shared) == 0 && len(s.entries) == 0
	})
	near, far = w.Moved()
	w.Talk(near, far)
	o.await(t, before)
}

// All flows of a connection go when one of them has ended, and with the last one of a client those for its ICMP.
func TestFlowsGo(t *testing.T) {
	o := &world{}
	w := leadtest.NewWorld(t, o.kind(t), false)
	near, far := w.Moved()
	w.Talk(near, far)
	shared := slices.DeleteFunc(o.lines(t), func(line string) bool { return strings.Contains(line, w.At.Addr().String()) })
	s := w.To.(*Switch)
	s.mu.Lock()
	number := s.entries[key{w.At, w.Public}].number
	s.mu.Unlock()
	c, err := openflow.Dial(o.options().Bridge, func(any) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Change(remove(number, roleTo)...), c.Close()); err != nil { // as the bridge does when it was not used
		t.Fatal(err)
	}
	o.await(t, shared)
}

func TestMost(t *testing.T) {
	o := &world{most: 1}
	w := leadtest.NewWorld(t, o.kind(t), false)
	near, far := w.Moved()
	for name, c := range map[string]struct {
		client netip.AddrPort
		full   bool
	}{"one more": {netip.AddrPortFrom(w.At.Addr(), 50001), true}, "the same": {w.At, false}} {
		if err := w.To.Lead(c.client, w.Public, w.Inside); c.full != (err != nil && strings.Contains(err.Error(), "1 connections, which is the most")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := w.To.(*Switch); len(s.numbers) != 1 || s.clients[w.At.Addr()].connections != 1 {
		t.Errorf("it has %d connections, of them %d of the client's", len(s.numbers), s.clients[w.At.Addr()].connections)
	}
	w.Talk(near, far)
}

// A router behind the bridge that is replaced by another one has its Ethernet address.
func TestNextHopChanges(t *testing.T) {
	w := leadtest.NewWorld(t, kindOf(t), false)
	near, far := w.Moved()
	w.Talk(near, far)
	w.Router.Do(t, func() error {
		link, err := netlink.LinkByName("net")
		if err == nil {
			err = netlink.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 0, 0, 1})
		}
		return err
	})
	w.Gateway.Do(t, func() error { // as a packet of this machine's would
		s := w.To.(*Switch)
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: s.entries[key{w.At, w.Public}].toTenant.device, IP: net.IPv4(10, 9, 2, 2), State: netlink.NUD_REACHABLE, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}})
	})
	w.Talk(near, far)
}

func TestErrors(t *testing.T) {
	o := &world{}
	w := leadtest.NewWorld(t, o.kind(t), false)
	refused := func(o Options, what, hint string) {
		t.Helper()
		for name, err := range map[string]error{"New": second(New(o)), "Check": Check(o)} {
			if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(errhint.Of(err), hint) {
				t.Errorf("%s: %v; %s", name, err, errhint.Of(err))
			}
		}
	}
	w.Gateway.Do(t, func() error {
		if err := Check(o.options()); err != nil {
			t.Error(err)
		}
		refused(Options{Bridge: "none-such"}, "the bridge none-such", "ovs-vsctl list-br")
		refused(Options{Bridge: filepath.Join(filepath.Dir(o.options().Bridge), "conf.db")}, "connection refused", "ovs-vsctl list-br")
		if err := o.switches.Speak(bridge, "OpenFlow10"); err != nil {
			return err
		}
		refused(o.options(), "does not speak OpenFlow 1.4", "ovs-vsctl add bridge BRIDGE protocols OpenFlow14")
		return nil
	})
}

func second(_ *Switch, err error) error { return err }
