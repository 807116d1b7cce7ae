package disguise

import (
	"compress/gzip"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"heddle/experiments/readers"
	"heddle/lab"
	"heddle/lab/labtest"
)

// heard are the sizes of the datagrams of one conversation with the bridge, in order.
type heard struct{ up, down []int }

// A page by a bridge over UDP. The network sees calls to the bridge: datagrams of the sizes of the recorded one, in its order, and
// nothing else. tshark takes each for RTP, and so does nDPI the calls.
func TestBridgeOverUDP(t *testing.T) {
	needReaders(t)
	w := newBridgeWorld(t, append(toWeb, "--cover", "embed:transport=udp")...)
	w.page = w.page[:100_000]
	places, dir := map[string]string{"home": "home-gw/client", "lte": "lte-gw/client"}, t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, places)
	dial := w.Start("client", "disguise is up", "disguise", "dial", w.client, "--listen", proxyAt, "--via", "home=if:home", "--cover", "embed:transport=udp:trace=video")
	if err := w.fetch(); err != nil {
		t.Fatalf("%v\n%s", err, dial.Log())
	}
	dial.Stop()
	end()
	if total := w.seen(dir, places, "nobody may read"); total["home"] < len(w.page) || total["lte"] > 0 {
		t.Errorf("the networks saw %v bytes", total)
	}
	recorded := recording(t, "video")
	calls := conversations(t, labtest.File(dir, "home"))
	if len(calls) < 4 {
		t.Errorf("%d conversations", len(calls))
	}
	for from, call := range calls {
		if !part(recorded.up, call.up) {
			t.Errorf("from %v: %d datagrams up are not those of the recorded call: %v", from, len(call.up), call.up)
		}
		if !begun(recorded.down, call.down) {
			t.Errorf("to %v: %d datagrams down are not those of the recorded call: %v", from, len(call.down), call.down)
		}
	}
	// The client's ports are any, and some of them belong to another protocol, which tshark would take the packets for.
	out, err := exec.CommandContext(t.Context(), "tshark", "-r", labtest.File(dir, "home"), "-Y", "udp", "-T", "fields", "-e", "frame.protocols", "--enable-heuristic", "rtp_udp",
		"-o", "udp.try_heuristic_first:TRUE").CombinedOutput()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, out)
	}
	if frames, as := strings.Count(string(out), ":udp"), strings.Count(string(out), ":rtp"); as != frames || frames == 0 {
		other := slices.DeleteFunc(strings.Fields(string(out)), func(protocols string) bool { return strings.Contains(protocols, ":rtp") })
		t.Errorf("tshark sees RTP in %d of %d packets, and else %v", as, frames, other)
	}
	// It judges by the first packets. A conversation that has just begun, or that lacks the bridge's first packets, gets another
	// name, or none.
	flows, total := named(t, labtest.File(dir, "home"))
	if flows["RTP"]*2 <= total {
		t.Errorf("nDPI names %v of %d conversations", flows, total)
	}
}

// named returns how many conversations of a capture nDPI takes for which protocol.
func named(t *testing.T, capture string) (flows map[string]int, total int) {
	t.Helper()
	flows, err := readers.NDPI(t.Context(), capture)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range flows {
		total += n
	}
	return flows, total
}

// recording returns the sizes of a trace in the database that Heddle brings (docs/disguise-wire.md).
func recording(t *testing.T, name string) (h heard) {
	t.Helper()
	var database struct {
		Traces []struct {
			Name  string
			Sizes []int
		}
	}
	f, err := os.Open("../../disguise/cover/embed/traces/lab.db")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err == nil {
		err = json.NewDecoder(unpacked).Decode(&database)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, trace := range database.Traces {
		for _, size := range trace.Sizes {
			if trace.Name == name {
				h.add(size > 0, max(size, -size))
			}
		}
	}
	return h
}

func (h *heard) add(up bool, size int) {
	if up {
		h.up = append(h.up, size)
	} else {
		h.down = append(h.down, size)
	}
}

// conversations returns those with the bridge, by the client's address. Any other packet of IPv4, which the world uses, fails the test.
func conversations(t *testing.T, file string) map[netip.AddrPort]*heard {
	t.Helper()
	bridge, all := netip.AddrPortFrom(lab.ServerAddr, 443), map[netip.AddrPort]*heard{}
	for _, p := range labtest.Packets(t, file) {
		if _, ok := p.NetworkLayer().(*layers.IPv4); !ok { // ARP, and what the kernels say about IPv6 on the link
			continue
		}
		udp, ok := p.TransportLayer().(*layers.UDP)
		if !ok {
			t.Errorf("a packet that is no UDP: %v", p)
			continue
		}
		src, dst := p.NetworkLayer().NetworkFlow().Endpoints()
		a, _ := netip.AddrFromSlice(src.Raw())
		b, _ := netip.AddrFromSlice(dst.Raw())
		from, to := netip.AddrPortFrom(a, uint16(udp.SrcPort)), netip.AddrPortFrom(b, uint16(udp.DstPort))
		up := to == bridge
		if !up && from != bridge {
			t.Errorf("a datagram from %v to %v", from, to)
			continue
		}
		if !up {
			from = to
		}
		if all[from] == nil {
			all[from] = &heard{}
		}
		all[from].add(up, len(udp.Payload))
	}
	return all
}

// part reports whether sizes are in a row somewhere in a trace that begins again at its end.
func part(trace, sizes []int) bool {
	for start := range trace {
		same := 0
		for same < len(sizes) && sizes[same] == trace[(start+same)%len(trace)] {
			same++
		}
		if same == len(sizes) {
			return true
		}
	}
	return false
}

// begun reports the same for a side that may not send all at the beginning: the bridge sends no more than it got until the client
// has shown that it receives.
func begun(trace, sizes []int) bool {
	for skip := range len(sizes)/2 + 1 {
		if part(trace, sizes[skip:]) {
			return true
		}
	}
	return false
}
