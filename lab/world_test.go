package lab

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/polltest"
)

func run(t *testing.T, h *Host, name string, args ...string) string {
	t.Helper()
	out, err := h.Command(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s %v: %v\n%s", h.Name(), name, args, err, out)
	}
	return string(out)
}

// sockets opens a UDP socket in each host: from is connected to the address that to listens on.
func sockets(t *testing.T, from, to *Host, addr string) (out, in *net.UDPConn) {
	t.Helper()
	address := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr))
	err := errors.Join(
		to.Do(func() (err error) { in, err = net.ListenUDP("udp", address); return err }),
		from.Do(func() (err error) { out, err = net.DialUDP("udp", nil, address); return err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close(); in.Close() })
	raw, err := in.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var optErr error // with force: all that a test sends must find room, whatever this machine permits
	err = raw.Control(func(fd uintptr) { optErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20) })
	if err := errors.Join(err, optErr); err != nil {
		t.Fatal(err)
	}
	return out, in
}

// send sends n datagrams and waits until the emulator has dealt with all of them. It sends no more at once than the link's devices queue
// (1000 packets), however late the emulator takes them.
func send(t *testing.T, link *Link, out *net.UDPConn, n, size int) (now Counters) {
	t.Helper()
	const burst = 500
	await := func(done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(polltest.Patience); ; time.Sleep(ms) {
			s, err := link.Status()
			if err != nil {
				t.Fatal(err)
			}
			if now = s.AtoB; done() {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("after %v: %+v", polltest.Patience, now)
			}
		}
	}
	await(func() bool { return true })
	before := now.Packets
	for i := range n {
		if _, err := out.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if sent := uint64(i + 1); sent%burst == 0 || i+1 == n {
			await(func() bool { return now.Packets-before >= sent })
		}
	}
	await(func() bool { return now.Packets == now.Delivered+now.Lost+now.Overflowed+now.Refused })
	return now
}

func TestThreeWaysReachTheServer(t *testing.T) {
	in := needWorld(t, ThreeWays())
	client := in.Host("client")
	for _, to := range []string{ServerAddr.String(), ServerAddr6.String(), "server.example"} {
		for _, way := range Ways {
			out := run(t, client, "ping", "-I", way, "-c", "2", "-i", "0.01", "-W", "60", to)
			if !strings.Contains(out, " 0% packet loss") {
				t.Errorf("%s by %s:\n%s", to, way, out)
			}
		}
	}
	if out, err := client.Command(t.Context(), "ping", "-c", "1", "-W", "1", WebAddr.String()).CombinedOutput(); err == nil {
		t.Errorf("the client reaches the web host without the server:\n%s", out)
	}
	run(t, in.Host("server"), "ping", "-c", "1", "-W", "60", WebAddr.String())
}

func TestEveryNamedWorldComesUp(t *testing.T) {
	for _, w := range Worlds() {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			if !needWorld(t, w).State().Ready {
				t.Error("not ready")
			}
		})
	}
}

func TestEmulatedRateAndQueue(t *testing.T) {
	w := Pair()
	w.Links[0] = w.Links[0].Both(Shape{Rate: 800_000, QueuePackets: 30}) // a 1000-byte packet each 10 milliseconds
	in := needWorld(t, w)
	out, _ := sockets(t, in.Host("a"), in.Host("b"), "10.0.0.2:9")
	count := send(t, in.Link("link"), out, 2000, 972)
	// All 2000 come at once, or nearly so on a busy machine: most must find the queue full. Bytes are counted, not
	// time.
	if count.Overflowed < 500 || count.DeliveredBytes/1000 < 30 {
		t.Errorf("%+v", count)
	}
	if count.Packets != count.Delivered+count.Overflowed {
		t.Errorf("packets are unaccounted for: %+v", count)
	}
}

func TestEmulatedLoss(t *testing.T) {
	w := Pair()
	w.Links[0] = w.Links[0].Both(Shape{Delay: ms})
	in := needWorld(t, w)
	out, at := sockets(t, in.Host("a"), in.Host("b"), "10.0.0.2:9")
	link := in.Link("link")
	if err := link.Reshape(func(s *Shape) { s.Loss = 0.25 }); err != nil {
		t.Fatal(err)
	}
	const n = 4000
	var count Counters
	for range n / 400 { // small bursts, which no socket buffer drops
		count = send(t, link, out, 400, 100)
	}
	if !within(count.Lost, int(count.Packets), 0.25) {
		t.Errorf("lost %d of %d at 0.25", count.Lost, count.Packets)
	}
	received := 0
	buffer := make([]byte, 2000)
	for ; ; received++ { // and then what should not be there
		patience := polltest.Patience
		if received+int(count.Lost) >= n {
			patience = 50 * ms
		}
		at.SetReadDeadline(time.Now().Add(patience))
		if _, err := at.Read(buffer); err != nil {
			break
		}
	}
	if received+int(count.Lost) < n || received > n-int(count.Lost)+16 {
		t.Errorf("%d of %d arrived, and %d were lost", received, n, count.Lost)
	}
}

func TestLinkChanges(t *testing.T) {
	in := needWorld(t, ThreeWays())
	client, home := in.Host("client"), in.Link("home")
	reach := func(want bool, what string, args ...string) {
		t.Helper()
		patience := "1"
		if want {
			patience = "60"
		}
		err := client.Command(t.Context(), "ping", append(args, "-c", "1", "-W", patience, ServerAddr.String())...).Run()
		if (err == nil) != want {
			t.Errorf("%s: reached %v, want %v", what, err == nil, want)
		}
	}
	set := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	reach(true, "at first", "-I", "home")
	set(home.Cut())
	reach(false, "cut", "-I", "home")
	reach(false, "cut, by the best route, which does not know")
	set(home.Restore())
	reach(true, "mended", "-I", "home")
	set(home.Unplug())
	reach(false, "unplugged", "-I", "home")
	reach(true, "unplugged, by the next route")
	set(home.Restore())
	reach(true, "plugged in", "-I", "home")
	routes := run(t, client, "ip", "route")
	if !strings.Contains(routes, "default via 10.101.1.1 dev home metric 100") {
		t.Errorf("the route is not back:\n%s", routes)
	}
	set(home.Readdress("client", prefixes("10.101.1.77/24", "2001:db8:101:1::77/64")...))
	reach(true, "with another address", "-I", "home")
	if addrs := run(t, client, "ip", "addr", "show", "dev", "home"); strings.Contains(addrs, "10.101.1.2/") || !strings.Contains(addrs, "10.101.1.77/24") {
		t.Errorf("addresses:\n%s", addrs)
	}
	if err := in.Link("server").Cut(); !errors.Is(err, ErrNotEmulated) {
		t.Errorf("a veth link is cut: %v", err)
	}
	if err := home.Reshape(func(s *Shape) { s.Loss = 2 }); err == nil {
		t.Error("a loss of 2 is taken")
	}
	if err := home.Readdress("server"); err == nil {
		t.Error("the server is at no end of home")
	}
}

func TestParallelWorldsDoNotCollide(t *testing.T) {
	one, two := needWorld(t, Pair()), needWorld(t, Pair())
	if one.Name() == two.Name() {
		t.Fatal("two worlds of one name")
	}
	for _, in := range []*Instance{one, two} {
		run(t, in.Host("a"), "sh", "-c", "echo "+in.Name()+" > /run/wireguard/mark; ping -c 1 -W 60 b.example")
	}
	for _, in := range []*Instance{one, two} {
		got := run(t, in.Host("a"), "sh", "-c", "cat /run/wireguard/mark; echo $HEDDLE_RUN_DIR; ls /sys/class/net")
		want := in.Name() + "\n" + in.Host("a").RunDir() + "\nlink\nlo\n"
		if got != want {
			t.Errorf("in the host: %q, want %q", got, want)
		}
	}
	if _, err := os.Stat("/run/wireguard/mark"); err == nil {
		t.Error("a host's /run/wireguard is the machine's")
	}
}

func TestUpRefuses(t *testing.T) {
	in := needWorld(t, Pair())
	if _, err := Up(t.Context(), Pair(), Options{Name: in.Name()}); err == nil || !strings.Contains(err.Error(), "is up") {
		t.Errorf("a second world of one name: %v", err)
	}
	if _, err := os.Stat(in.Host("a").Namespace()); err != nil {
		t.Errorf("the refusal hurt the first: %v", err)
	}
	if _, err := Up(t.Context(), Pair(), Options{Name: "../x"}); err == nil {
		t.Error("../x is taken for a name")
	}
	bad := Pair()
	bad.Hosts[0].Routes = defaults("203.0.113.1", "2001:db8:ffff::1", "link", 0) // no gateway of the link
	if _, err := Up(t.Context(), bad, Options{Name: "unroutable"}); err == nil {
		t.Error("an impossible route is taken")
	}
	assertGone(t, "unroutable", bad)
	bad = Pair()
	bad.Congestion = "none-of-these"
	if _, err := Up(t.Context(), bad, Options{Name: "uncontrolled"}); err == nil || !strings.Contains(err.Error(), bad.Congestion) {
		t.Errorf("an unknown congestion control: %v", err)
	}
	assertGone(t, "uncontrolled", bad)
}

func TestCongestionControl(t *testing.T) {
	w := Pair()
	w.Congestion = "reno" // each kernel has it
	in := needWorld(t, w)
	for _, h := range w.Hosts {
		if out := run(t, in.Host(h.Name), "cat", "/proc/sys/net/ipv4/tcp_congestion_control"); strings.TrimSpace(out) != w.Congestion {
			t.Errorf("%s has %q", h.Name, out)
		}
	}
}

func assertGone(t *testing.T, name string, w World) {
	t.Helper()
	for _, h := range w.Hosts {
		if _, err := os.Lstat(filepath.Join(netnsDir, namespaceName(name, h.Name))); !os.IsNotExist(err) {
			t.Errorf("the namespace of %s is left: %v", h.Name, err)
		}
	}
	if _, err := os.Lstat(dir(name)); !os.IsNotExist(err) {
		t.Errorf("the state directory is left: %v", err)
	}
}

func TestDownEndsProcessesAndMayBeRepeated(t *testing.T) {
	in := needWorld(t, Pair())
	// One that ends when asked, and one that does not.
	for _, c := range []struct {
		script string
		inside int // processes, with those of before
	}{{"exec sleep 600", 1}, {"trap '' TERM; while :; do sleep 600; done", 3}} {
		cmd := in.Host("a").Command(t.Context(), "sh", "-c", c.script)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cmd.Wait(); err == nil {
				t.Error("it ended by itself")
			}
		})
		waitInside(t, in, c.inside)
	}
	for range 2 {
		if err := in.Down(); err != nil {
			t.Fatal(err)
		}
	}
	assertGone(t, in.Name(), Pair())
}

// waitInside waits until at least n processes are inside host a.
func waitInside(t *testing.T, in *Instance, n int) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(in.Host("a").Namespace(), &st); err != nil {
		t.Fatal(err)
	}
	polltest.Await(t, "the process is inside", func() bool { return signalInside(map[uint64]bool{st.Ino: true}, 0, 0) >= n })
}
