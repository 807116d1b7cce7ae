package faults

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// below is a world with wireguard-go at both ends, and a `heddle split` that programs do not send to.
type below struct {
	*lab.Instance
	t     *testing.T
	split *peer.Process
	iperf netip.AddrPort
}

func newBelow(t *testing.T, backend string) *below {
	t.Helper()
	in := labtest.Up(t, lab.ThreeWaysUnlimited())
	b := &below{Instance: in, t: t, iperf: netip.MustParseAddrPort("10.9.0.1:5201")}
	endpoint := netip.AddrPortFrom(lab.ServerAddr, 51820)
	server, err := peer.WireGuardServer(t.Context(), in.Host("server"), peer.WireGuardConfig{Endpoint: endpoint,
		Allowed: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}})
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"split", "--name", "below", "--backend", backend, "--to", endpoint.String(), "--schedule", "uniform", "--every", "20ms"}, via...)
	if b.split, err = peer.Start(t.Context(), in.Host("client"), labtest.Heddle, args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.split.Stop)
	if err := b.split.AwaitLog(t.Context(), "over 3 paths"); err != nil {
		if strings.Contains(err.Error(), "the kernel refuses") {
			t.Skip("typed skip:", err)
		}
		t.Fatal(err)
	}
	if _, err = server.Client(t.Context(), in.Host("client"), endpoint); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !b.ping(); {
		if time.Now().After(end) {
			t.Fatalf("the tunnel does not come up: %s", b.split.Log())
		}
	}
	if _, err := peer.IperfServer(t.Context(), in.Host("server"), b.iperf); err != nil {
		t.Fatal(err)
	}
	return b
}

// ping reports whether a packet goes through the tunnel and back.
func (b *below) ping() bool {
	return b.Host("client").Command(b.t.Context(), "ping", "-c", "1", "-W", "1", "10.9.0.1").Run() == nil
}

// seen captures at the routers of the access networks while do runs, and gives the tunnel's packets up, by way. No way
// may carry what has another one's address.
func (b *below) seen(do func()) map[string]int {
	b.t.Helper()
	dir, places := b.t.TempDir(), map[string]string{}
	for _, way := range lab.Ways {
		places[way] = way + "-gw/client"
	}
	end := labtest.Capture(b.t, b.Instance, dir, places)
	do()
	end()
	up := map[string]int{}
	for i, way := range lab.Ways {
		c := labtest.Read(b.t, labtest.File(dir, way), b.Host("client").Addrs())
		own := netip.MustParseAddr(fmt.Sprintf("10.101.%d.2", i+1))
		for _, p := range c.Packets {
			if flow := c.Flows[p.Flow]; flow.Server.Port() == 51820 && p.Out {
				up[way]++
				if flow.Client.Addr() != own {
					b.t.Fatalf("%s carries a packet from %v", way, flow.Client)
				}
			}
		}
	}
	return up
}

// wireguard-go sends runs of segments (UDP_SEGMENT) at full speed: none may leave unsplit or with a wrong address.
func TestBackendsBelowTheSocket(t *testing.T) {
	for _, backend := range []string{"kernel", "route"} {
		t.Run(backend, func(t *testing.T) {
			b := newBelow(t, backend)
			carry := func() {
				for _, down := range []bool{false, true} {
					if _, err := peer.Iperf(t.Context(), b.Host("client"), peer.IperfTest{To: b.iperf, Down: down, For: time.Second}); err != nil {
						t.Fatalf("%v\n%s", err, b.split.Log())
					}
				}
			}
			polltest.Again(t, func(int) error { // a second is short on a busy machine
				up := b.seen(carry)
				if slices.ContainsFunc(lab.Ways, func(way string) bool { return up[way] < 100 }) {
					return fmt.Errorf("packets up by way: %v", up)
				}
				return nil
			})
			if backend == "kernel" {
				b.killed()
			}
		})
	}
}

// killed ends heddle without giving it a chance: then nothing may leave until somebody cleans up.
func (b *below) killed() {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.Host("client").RunDir(), "below.lock"))
	if err != nil {
		b.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil {
		err = unix.Kill(pid, unix.SIGKILL)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	<-b.split.Done()
	for end := time.Now().Add(20 * time.Second); ; {
		came := false
		up := b.seen(func() { came = b.ping() })
		if !came && len(up) == 0 {
			break
		}
		if time.Now().After(end) {
			b.t.Fatalf("packets leave long after the crash: %v", up)
		}
	}
	if up := b.seen(func() { b.ping() }); len(up) != 0 {
		b.t.Errorf("after the crash packets left: %v", up)
	}
	out, err := b.Host("client").Command(b.t.Context(), labtest.Heddle, "down", "below").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "taken back") {
		b.t.Errorf("heddle down: %v\n%s", err, out)
	}
	for end := time.Now().Add(time.Minute); !b.ping(); {
		if time.Now().After(end) {
			b.t.Fatal("nothing leaves after cleaning up")
		}
	}
}
