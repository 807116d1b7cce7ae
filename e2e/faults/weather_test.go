package faults

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/observe"
)

func bytesOf(packets []observe.Packet, out bool) (n int) {
	for _, p := range packets {
		if p.Out == out {
			n += p.Size
		}
	}
	return n
}

func TestBatchesAreExactOnTheWire(t *testing.T) {
	o := newOffice(t, lab.ThreeWays())
	polltest.Again(t, func(int) error { // a busy machine doubts a path that it sent nothing by for a second
		b := o.batches()
		if b.total >= 25 && b.exact >= b.total-b.own {
			return nil
		}
		if b.slowest < 800*time.Millisecond {
			t.Fatalf("%+v", b)
		}
		return fmt.Errorf("%+v", b)
	})
}

// batches are runs of packets on one path.
type batches struct {
	exact, total int           // those of 50 packets, and all that count
	own          int           // handshakes of wireguard-go's own: each makes a run shorter
	slowest      time.Duration // from the beginning of a run to that of the next but one
	runs         []int
}

// batches downloads over a new tunnel.
func (o *office) batches() (b batches) {
	o.t.Helper()
	stop := o.watch(lab.Ways...)
	r := o.up("--schedule", "round-robin", "--every", "50p")
	r.fetchUnits(50, 40)
	r.Stop()
	type seen struct {
		at  time.Time
		way string
	}
	var all []seen
	var heard []time.Time // when packets came down
	handshakes := 0
	for way, packets := range stop() {
		for _, p := range packets {
			switch {
			case !p.Out:
				heard = append(heard, p.Time)
			case p.Size == handshakeSize:
				handshakes++
			default:
				all = append(all, seen{p.Time, way})
			}
		}
	}
	slices.SortFunc(all, func(a, b seen) int { return a.at.Compare(b.at) })
	slices.SortFunc(heard, time.Time.Compare)
	// silent reports that the server said nothing for long before a moment: then its path is left early.
	silent := func(at time.Time) bool {
		i, _ := slices.BinarySearchFunc(heard, at, time.Time.Compare)
		return i == 0 || at.Sub(heard[i-1]) > 400*time.Millisecond
	}
	var began []time.Time
	cut := map[int]bool{} // runs that a silence ended, or began
	for i, s := range all {
		if i == 0 || s.way != all[i-1].way {
			if silent(s.at) {
				cut[len(b.runs)-1], cut[len(b.runs)] = true, true
			}
			b.runs, began = append(b.runs, 0), append(began, s.at)
		}
		b.runs[len(b.runs)-1]++
	}
	// The first runs are of before the session is settled.
	for i := len(lab.Ways); i < len(b.runs)-1; i++ {
		b.slowest = max(b.slowest, began[i].Sub(began[i-2]))
		if cut[i] {
			continue
		}
		b.total++
		if b.runs[i] == 50 {
			b.exact++
		}
	}
	// Handshakes that prove the paths are of no run; those of wireguard-go's own are.
	b.own = max(handshakes-len(lab.Ways), 1)
	return b
}

// fetchUnits downloads until so many more units went up, of so many packets each. The client sends an acknowledgement for two packets of a
// download, or for more on a busy machine.
func (r *running) fetchUnits(packets, units uint64) {
	r.o.t.Helper()
	up := func() (n uint64) {
		s, err := r.status()
		if err != nil {
			r.o.t.Fatal(err)
		}
		for _, p := range s.Paths {
			n += p.Up.Packets
		}
		return n
	}
	for enough := up() + packets*units; up() < enough; {
		if err := r.o.fetch(3 * time.Minute)(); err != nil {
			r.o.t.Fatalf("%v\n%s", err, r.Log())
		}
	}
}

// handshakeSize is that of an IPv4 packet with a handshake initiation, the session's own or a question to the server.
const handshakeSize = 20 + 8 + 148

func TestPathDiesDuringADownload(t *testing.T) {
	for _, how := range []struct {
		name   string
		change func(*lab.Link) error
	}{{"cut further away", (*lab.Link).Cut}, {"unplugged", (*lab.Link).Unplug}} {
		t.Run(how.name, func(t *testing.T) {
			o := newOffice(t, lab.ThreeWays())
			r := o.up("--schedule", "uniform", "--every", "100ms")
			wait := o.fetch(3 * time.Minute)
			r.await(time.Minute, func(s status) bool { return s.path("lte").Down.Bytes > 1<<20 })
			if err := how.change(o.Link("lte")); err != nil {
				t.Fatal(err)
			}
			r.await(time.Minute, func(s status) bool {
				p := s.path("lte")
				return (p.State == "silent" || p.State == "down") && p.Why != "" && s.State == "running"
			})
			if err := wait(); err != nil {
				t.Errorf("the download does not survive: %v\n%s", err, r.Log())
			}
			if err := o.Link("lte").Restore(); err != nil {
				t.Fatal(err)
			}
			back := r.await(time.Minute, func(s status) bool { return s.path("lte").State == "up" })
			o.fetchOver(r, "lte", back)
		})
	}
}

// fetchOver downloads once more and sees that a path takes its part. A busy machine may doubt the path again.
func (o *office) fetchOver(r *running, way string, before status) {
	o.t.Helper()
	polltest.Again(o.t, func(int) error {
		if err := o.fetch(3 * time.Minute)(); err != nil {
			o.t.Fatalf("%v\n%s", err, r.Log())
		}
		after, err := r.status()
		if err != nil {
			o.t.Fatal(err)
		}
		grown := after.path(way).Down.Bytes - before.path(way).Down.Bytes
		if before = after; grown < 1<<20 {
			return fmt.Errorf("%s carried %d bytes of a download after it came back\n%s", way, grown, r.Log())
		}
		return nil
	})
}

func TestNothingTakesAPathThatWasNotAskedFor(t *testing.T) {
	o := newOffice(t, lab.ThreeWays())
	stop := o.watch("office")
	p := o.start("--via", "home=if:home", "--via", "lte=if:lte", "--schedule", "uniform")
	p.await(time.Minute, func(s status) bool { return s.State == "running" && s.device(o) })
	wait := o.fetch(3 * time.Minute)
	p.await(time.Minute, func(s status) bool { return s.path("lte").Down.Bytes > 1<<20 })
	if err := o.Link("lte").Cut(); err != nil {
		t.Fatal(err)
	}
	s := p.await(time.Minute, func(s status) bool { return s.State == "stopped" })
	if !strings.Contains(s.Why, "1 of 2") || !strings.Contains(s.Why, "lte") {
		t.Errorf("why: %q", s.Why)
	}
	watchHome := o.watch("home")
	time.Sleep(2 * time.Second)
	for _, p := range watchHome()["home"] { // questions to the server may go, the session's packets may not
		if p.Out && p.Size != handshakeSize {
			t.Errorf("%d bytes left by the path that lives although two are required", p.Size)
		}
	}
	if err := o.Link("lte").Restore(); err != nil {
		t.Fatal(err)
	}
	p.await(time.Minute, func(s status) bool { return s.State == "running" })
	if err := wait(); err != nil {
		t.Errorf("the download does not resume: %v", err)
	}
	p.Stop()
	for _, packet := range stop()["office"] {
		t.Fatalf("a packet of %d bytes took the network that was not asked for", packet.Size)
	}
}

func TestAllPathsDieAndComeBack(t *testing.T) {
	o := newOffice(t, lab.ThreeWays())
	r := o.up("--schedule", "uniform")
	o.fetch(3 * time.Minute)
	r.await(time.Minute, func(s status) bool { return s.path("home").Down.Bytes > 1<<20 })
	for _, way := range lab.Ways {
		if err := o.Link(way).Cut(); err != nil {
			t.Fatal(err)
		}
	}
	r.await(time.Minute, func(s status) bool { return s.State == "stopped" })
	for _, way := range lab.Ways {
		if err := o.Link(way).Restore(); err != nil {
			t.Fatal(err)
		}
	}
	r.await(time.Minute, func(s status) bool { return s.State == "running" })
	// The download of before is TCP's own affair: its next attempt may be half a minute away.
	if err := o.fetch(3 * time.Minute)(); err != nil {
		t.Errorf("after all came back: %v\n%s", err, r.Log())
	}
}

func TestAddressOfAPathChanges(t *testing.T) {
	o := newOffice(t, lab.ThreeWays())
	r := o.up("--schedule", "uniform", "--every", "50ms")
	wait := o.fetch(3 * time.Minute)
	r.await(time.Minute, func(s status) bool { return s.path("lte").Down.Bytes > 1<<20 })
	roamed := netip.MustParsePrefix("10.101.2.77/24")
	if err := o.Link("lte").Readdress("client", roamed, netip.MustParsePrefix("2001:db8:101:2::77/64")); err != nil {
		t.Fatal(err)
	}
	s := r.await(time.Minute, func(s status) bool {
		return s.path("lte").Address.Addr() == roamed.Addr() && s.path("lte").State == "up"
	})
	if err := wait(); err != nil {
		t.Error(err)
	}
	o.fetchOver(r, "lte", s)
}

func TestDeviceWithoutAnAddressBorrowsNone(t *testing.T) {
	o := newOffice(t, lab.ThreeWays())
	if out, err := o.Host("client").Command(t.Context(), "ip", "address", "flush", "dev", "lte").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stop := o.watch("lte")
	r := o.start(append(slices.Clone(via), "--min-paths", "2")...)
	r.await(time.Minute, func(s status) bool {
		p := s.path("lte")
		return s.State == "running" && p.State == "down" && p.Why != ""
	})
	r.Stop()
	for _, p := range stop()["lte"] {
		if p.Out && p.Size > 100 {
			t.Fatalf("a packet of %d bytes left by the device without an address", p.Size)
		}
	}
}

func TestDeviceThatIsDownIsToldAndTakenWhenUp(t *testing.T) {
	o := newOffice(t, lab.ThreeWays())
	if err := o.Link("lte").Unplug(); err != nil {
		t.Fatal(err)
	}
	r := o.start(via...)
	r.await(time.Minute, func(s status) bool {
		p := s.path("lte")
		return s.State == "running" && p.State == "down" && strings.Contains(p.Why, "lte is down")
	})
	if err := o.Link("lte").Restore(); err != nil {
		t.Fatal(err)
	}
	r.await(time.Minute, func(s status) bool { return s.path("lte").State == "up" })
}

func TestServerWithAnIPv6Address(t *testing.T) {
	o := newOffice(t, lab.ThreeWays())
	text, err := os.ReadFile(o.file)
	if err != nil {
		t.Fatal(err)
	}
	v6 := strings.Replace(string(text), "192.0.2.1:51820", "[2001:db8:2::1]:51820", 1)
	if err := os.WriteFile(o.file, []byte(v6), 0o600); err != nil {
		t.Fatal(err)
	}
	r := o.up("--schedule", "uniform", "--every", "50p")
	polltest.Again(t, func(int) error { // a path that a busy machine doubts carries less
		r.fetchUnits(50, 40)
		s, err := r.status()
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range lab.Ways {
			p := s.path(way)
			if !p.Address.Addr().Is6() {
				t.Fatalf("%s from %v", way, p.Address)
			}
			if p.Down.Share < 0.1 {
				return fmt.Errorf("%s carried %.2f of the download", way, p.Down.Share)
			}
		}
		return nil
	})
}

func TestServerThatIsNotThereIsTold(t *testing.T) {
	o := newOffice(t, lab.ThreeWays())
	o.server.Stop()
	p := o.start(via...)
	for end := time.Now().Add(time.Minute); !strings.Contains(p.Log(), "nothing listens on that port, says 192.0.2.1"); {
		if time.Now().After(end) {
			t.Fatalf("the log does not say what the server's machine said:\n%s", p.Log())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func TestFloodAtTheBind(t *testing.T) {
	o := newOffice(t, lab.ThreeWays())
	r := o.up()
	s, err := r.status()
	if err != nil {
		t.Fatal(err)
	}
	flood := `import os,socket,sys
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)
for i in range(20000): s.sendto(os.urandom(1+i%1400),(sys.argv[1],int(sys.argv[2])))`
	home := s.path("home").Address
	before, rss := descriptors(t, o), memory(t, o, "VmRSS")
	for _, from := range []string{"home-gw", "server"} {
		out, err := o.Host(from).Command(t.Context(), "python3", "-c", flood, home.Addr().String(), portOf(home)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if after := memory(t, o, "VmRSS"); after > rss+16<<10 {
		t.Errorf("the flood took memory from %d kB to %d kB", rss, after)
	}
	if err := o.fetch(3 * time.Minute)(); err != nil {
		t.Errorf("after the flood: %v\n%s", err, r.Log())
	}
	if after := descriptors(t, o); after > before+8 {
		t.Errorf("%d descriptors before the flood, %d after", before, after)
	}
	if kept := len(r.Log()); kept > 20000 {
		t.Errorf("the flood wrote %d bytes of log", kept)
	}
}

func TestKilledAndStartedAgain(t *testing.T) {
	o := newOffice(t, lab.ThreeWays())
	rules := func() string { // but not the guard of the kernel's answers, whose entries end by themselves
		out, err := o.Host("client").Command(t.Context(), "sh", "-c", "ip rule; ip -6 rule; ip route show table all | grep -v '^ff\\|^fe\\|^local\\|^broadcast\\|^multicast\\|^anycast'; nft list tables | grep -v heddle_late_answers; ls /sys/class/net; cat /etc/resolv.conf").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	clean := rules()
	r := o.up()
	if out, err := o.heddle(append([]string{"up", o.file}, via...)...); err == nil || !strings.Contains(out, "already") || !strings.Contains(out, "hint:") {
		t.Errorf("a second start beside a running one: %v\n%s", err, out)
	}
	r.kill()
	if out, err := o.Host("client").Command(t.Context(), "ping", "-c", "1", "-W", "1", "192.0.2.254").CombinedOutput(); err == nil {
		t.Errorf("after the kill, traffic leaves by the default route:\n%s", out)
	}
	again := o.up()
	if err := o.fetch(3 * time.Minute)(); err != nil {
		t.Error(err)
	}
	again.Stop()
	if after := rules(); after != clean {
		t.Errorf("left behind:\n%s\nwas:\n%s", after, clean)
	}
	r = o.up()
	r.kill()
	if out, err := o.heddle("down", "vpn"); err != nil {
		t.Errorf("heddle down: %v\n%s", err, out)
	}
	if after := rules(); after != clean {
		t.Errorf("heddle down leaves:\n%s\nwas:\n%s", after, clean)
	}
}

func TestKillSwitchKeepsTheRestIn(t *testing.T) {
	o := newOffice(t, lab.ThreeWays())
	o.up()
	// Bound to the device, a program would pass the tunnel's routes by.
	for _, to := range []string{"192.0.2.254", "2001:db8:2::fe"} {
		if out, err := o.Host("client").Command(t.Context(), "ping", "-I", "home", "-c", "1", "-W", "1", to).CombinedOutput(); err == nil {
			t.Errorf("a packet to %s passed the tunnel by:\n%s", to, out)
		}
	}
	if err := o.fetch(3 * time.Minute)(); err != nil {
		t.Error(err)
	}
}

func TestFileThatOthersCanReadIsRefused(t *testing.T) {
	o := newOffice(t, lab.ThreeWays())
	if err := os.Chmod(o.file, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := o.heddle(append([]string{"up", o.file}, via...)...)
	var exit interface{ ExitCode() int }
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "chmod 600") {
		t.Errorf("%v:\n%s", err, out)
	}
}
