package browser

import (
	"crypto/sha256"
	"crypto/tls"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"heddle/lab"
	"heddle/lab/labtest"
)

// datagram is one of the session's, as a capture at one access network holds it.
type datagram struct {
	at     time.Time
	way    string
	out    bool // to the server
	client netip.Addr
	bytes  int
	sum    [sha256.Size]byte
	long   bool // a QUIC long header
}

// watch captures at the client's device of each access network; stop gives what was between the client and the
// server's port 443, in the order of time; anything else is an error.
func (g *gallery) watch() (stop func() []datagram) {
	g.t.Helper()
	dir, places := g.t.TempDir(), map[string]string{}
	for _, way := range lab.Ways {
		places[way] = "client/" + way
	}
	end := labtest.Capture(g.t, g.Instance, dir, places)
	return func() []datagram {
		g.t.Helper()
		end()
		var all []datagram
		for way := range places {
			all = append(all, datagrams(g.t, way, labtest.File(dir, way))...)
		}
		slices.SortFunc(all, func(a, b datagram) int { return a.at.Compare(b.at) })
		return all
	}
}

func datagrams(t *testing.T, way, file string) (all []datagram) {
	t.Helper()
	for at, p := range labtest.Packets(t, file) {
		if p.TransportLayer() == nil {
			continue // neighbour discovery and the like, of the machine itself
		}
		udp, ok := p.TransportLayer().(*layers.UDP)
		if !ok || udp.SrcPort != 443 && udp.DstPort != 443 {
			t.Errorf("%s carries something else of the browser: %v", way, p)
			continue
		}
		from, to := p.NetworkLayer().NetworkFlow().Endpoints()
		d := datagram{at: at, way: way, out: udp.DstPort == 443, bytes: len(udp.Payload),
			sum: sha256.Sum256(udp.Payload), long: len(udp.Payload) > 0 && udp.Payload[0]&0x80 != 0}
		if !d.out {
			from = to
		}
		d.client, _ = netip.AddrFromSlice(from.Raw())
		all = append(all, d)
	}
	return all
}

// share is what part of the packets that pick takes went by each way.
func share(all []datagram, pick func(datagram) bool) map[string]float64 {
	out, total := map[string]float64{}, 0.0
	for _, d := range all {
		if pick(d) {
			out[d.way]++
			total++
		}
	}
	for way := range out {
		out[way] /= total
	}
	return out
}

// A machine that stands still for a moment makes the relay doubt a path: docs/wire.md, "Trials". Of a path's packets, those of
// one trial and a tenth of all may go again by another.
const (
	trialMost  = 32
	trialShare = 10
)

// separate checks that each path's packets have its own address, and that none was on two paths, but for trials.
func separate(t *testing.T, all []datagram) {
	t.Helper()
	address, carrier := map[string]netip.Addr{}, map[[sha256.Size]byte]string{}
	sent, again := map[string]int{}, map[string]int{}
	for _, d := range all {
		if a, seen := address[d.way]; seen && a != d.client {
			t.Fatalf("%s carries packets of both %v and %v", d.way, a, d.client)
		}
		address[d.way] = d.client
		other, seen := carrier[d.sum]
		switch {
		case !seen:
			carrier[d.sum] = d.way
			sent[d.way]++
		case other == d.way:
		case !d.out || d.long:
			t.Fatalf("a packet of %d bytes (out: %v, long: %v) was on %s and on %s", d.bytes, d.out, d.long, other, d.way)
		default:
			again[other]++
		}
	}
	for way, n := range again {
		if t.Logf("%d packets of %s were on another path too", n, way); n > trialMost+sent[way]/trialShare {
			t.Errorf("%d packets of %s, of %d, were on another path too", n, way, sent[way])
		}
	}
	taken := map[netip.Addr]string{}
	for way, a := range address {
		if other, seen := taken[a]; seen {
			t.Fatalf("%s and %s both have the address %v", way, other, a)
		}
		taken[a] = way
	}
}

func tlsConfig(certificate, key string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}, err
}
