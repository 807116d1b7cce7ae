package faults

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// soak is how long the tests at full speed run; HEDDLE_SOAK=10m makes them endurance runs.
func soak(t *testing.T) time.Duration {
	text := os.Getenv("HEDDLE_SOAK")
	if text == "" {
		return 12 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// memory reads a line such as VmRSS of the running heddle, in kB.
func memory(t *testing.T, o *office, line string) (kb int) {
	t.Helper()
	s, err := os.ReadFile(filepath.Join("/proc", o.pid(), "status"))
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(s)) {
		if n, _ := fmt.Sscanf(text, line+": %d kB", &kb); n == 1 {
			return kb
		}
	}
	t.Fatalf("no %s in\n%s", line, s)
	return 0
}

func TestDownloadFollowsTheWeightsAlone(t *testing.T) {
	o := layOffice(t, lab.ThreeWays())
	at := netip.MustParseAddrPort("10.9.0.1:5201")
	if _, err := peer.IperfServer(t.Context(), o.Host("server"), at); err != nil {
		t.Fatal(err)
	}
	polltest.Again(t, func(int) error { return o.followsTheWeights(at) }) // a path that a busy machine made late carries less
}

// followsTheWeights returns why the shares of a download from an iperf3 server are not those of the weights.
func (o *office) followsTheWeights(at netip.AddrPort) error {
	t := o.t
	t.Helper()
	// Any hundred draws of this seed in a row are within six points of the weights, and so are longer runs.
	r := o.up("--schedule", "weighted", "--every", "100ms", "--seed", "118")
	defer r.Stop()
	stop := o.watch(lab.Ways...)
	if _, err := peer.Iperf(t.Context(), o.Host("client"), peer.IperfTest{To: at, Down: true, For: soak(t)}); err != nil {
		t.Fatal(err)
	}
	captured := stop()
	s, err := r.status()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, packets := range captured {
		total += bytesOf(packets, false)
	}
	// Units carry unequal parts of 120 or so, whatever is drawn; ten points over a minute and more.
	tolerance := 0.15
	if soak(t) >= time.Minute {
		tolerance = 0.10
	}
	for way, packets := range captured {
		share, weight := float64(bytesOf(packets, false))/float64(total), s.path(way).Weight
		t.Logf("%s: weight %.3f, share of the download %.3f", way, weight, share)
		if math.Abs(share-weight) > tolerance {
			return fmt.Errorf("seed 118: %s carried %.3f of the download, its weight is %.3f", way, share, weight)
		}
		if got := s.path(way).Down.Share; math.Abs(got-share) > 0.02 {
			return fmt.Errorf("%s: status says %.3f, the capture %.3f", way, got, share)
		}
	}
	return nil
}

func TestFullSpeedKeepsMemoryAndDescriptorsAlone(t *testing.T) {
	o := layOffice(t, lab.ThreeWaysUnlimited())
	r := o.up("--schedule", "weighted", "--every", "100ms")
	at := netip.MustParseAddrPort("10.9.0.1:5201")
	if _, err := peer.IperfServer(t.Context(), o.Host("server"), at); err != nil {
		t.Fatal(err)
	}
	run := func(down bool, d time.Duration) {
		t.Helper()
		got, err := peer.Iperf(t.Context(), o.Host("client"), peer.IperfTest{To: at, Down: down, For: d})
		if err != nil {
			t.Fatalf("%v\n%s", err, r.Log())
		}
		t.Logf("down %v: %.0f Mbit/s; RSS %d kB, peak %d kB, %d descriptors", down, got.BitsPerSecond/1e6,
			memory(t, o, "VmRSS"), memory(t, o, "VmHWM"), descriptors(t, o))
	}
	run(true, 3*time.Second)
	run(false, 3*time.Second)
	rss, open := memory(t, o, "VmRSS"), descriptors(t, o)
	run(true, soak(t)/2)
	run(false, soak(t)/2)
	if after := memory(t, o, "VmRSS"); after > rss+32<<10 {
		t.Errorf("memory grew from %d kB to %d kB", rss, after)
	}
	if peak := memory(t, o, "VmHWM"); peak > 80<<10 {
		t.Errorf("memory peaked at %d kB", peak)
	}
	polltest.Await(t, fmt.Sprintf("no more than %d descriptors are open", open), func() bool { return descriptors(t, o) <= open })
}

// The server talks, the client does not answer: without help the downlink would stay where the last packet went up.
func TestSilentClientIsSplitToo(t *testing.T) {
	o := newOffice(t, lab.ThreeWays())
	r := o.up("--schedule", "uniform", "--every", "50ms", "--seed", "3")
	dir, places := t.TempDir(), map[string]string{}
	for _, way := range lab.Ways {
		places[way] = way + "-gw/core"
	}
	end := labtest.Capture(t, o.Instance, dir, places)
	talk := `import socket,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)
for i in range(4000): s.sendto(bytes(1000),("10.9.0.2",9)); time.sleep(0.001)`
	// Replies such as "port unreachable" would be packets up, so a listener swallows what comes.
	swallow := `import socket
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(("10.9.0.2",9)); print("ready",flush=True)
while True: s.recv(2000)`
	listener, err := peer.Start(t.Context(), o.Host("client"), "python3", "-c", swallow)
	if err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(listener.Log(), "ready") {
		select {
		case <-listener.Done():
			t.Fatal(listener.Log())
		case <-time.After(10 * time.Millisecond):
		}
	}
	begin := time.Now()
	if out, err := o.Host("web").Command(t.Context(), "python3", "-c", talk).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	units := int(time.Since(begin) / (50 * time.Millisecond))
	listener.Stop()
	r.Stop()
	total, up := 0, 0
	down := map[string]int{}
	end()
	for way := range places {
		for _, p := range o.read(labtest.File(dir, way), o.Host("client").Addrs()) {
			switch {
			case p.Out:
				up++
			case p.Size > 1000:
				down[way]++
				total++
			}
		}
	}
	for _, way := range lab.Ways {
		if share := float64(down[way]) / float64(total); share < 0.15 {
			t.Errorf("seed 3: %s carried %.2f of a download that nobody answered: %v", way, share, down)
		}
	}
	// At least 80 units, of which two thirds change the path: each costs one small packet.
	if up > 5*units {
		t.Errorf("%d packets went up in %d units", up, units)
	}
}
