package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"heddle/internal/netutil"
	"heddle/lab"
	"heddle/lab/peer"
	"heddle/path"
)

// disguiseSize is a size of downloads in bytes, by the name of its figure.
type disguiseSize = struct {
	name  string
	bytes int
}

// disguiseSizes are of StegoTorus, figure 7 and table 3.
var disguiseSizes = []disguiseSize{{"100kB", 100_000}, {"300kB", 300_000}, {"1MB", 1_000_000}}

// largeSize shows what a fast link carries.
var largeSize = disguiseSize{"10MB", 10_000_000}

// Disguise is table 3 and figures 6 and 7 of StegoTorus: goodput of downloads over a DSL link, the bytes on that link, and streams of
// a fixed rate at growing latency, directly, by Tor, and by Tor over transports, relative to Tor.
func Disguise() Bench {
	return Bench{
		name: "disguise",
		topologies: func(quick bool) []*topology {
			sizes, fast := disguiseSizes, []disguiseSize{disguiseSizes[len(disguiseSizes)-1], largeSize}
			if quick {
				sizes, fast = sizes[len(sizes)-1:], fast[:1]
			}
			return []*topology{disguiseTopology("dsl85", 85*time.Millisecond, sizes, quick),
				disguiseTopology("dsl450", 450*time.Millisecond, sizes, quick), steadyTopology(quick),
				fastTopology("fast85", 85*time.Millisecond, fast...), fastTopology("fast450", 450*time.Millisecond, fast...)}
		},
		paper: disguisePaper,
	}
}

func disguiseTopology(name string, rtt time.Duration, sizes []disguiseSize, quick bool) *topology {
	n := &torWays{}
	t := &topology{name: name, world: lab.Tor("tor", lab.DSL(rtt)), serve: n.serve, check: checkDisguise}
	for _, way := range torWayNames(quick) {
		t.cases = append(t.cases, variant{way, func(ctx context.Context, s *stage, _ int) (figures []figure, err error) {
			err = n.by(ctx, s, way, func(socks uint16) error {
				var proxy []string
				if socks != 0 {
					proxy = peer.BySOCKS(socks)
				}
				figures, err = download(ctx, s, "http://web.example/", sizes, proxy...)
				return err
			})
			return figures, err
		}})
	}
	return t
}

func checkDisguise() error {
	_, err := peer.Obfs4(0)
	return err
}

// The ways to a web server: without Tor, by Tor's guards, by a bridge, and by transports to the same bridge.
const (
	wayTor    = "tor"
	wayDirect = "direct"
	wayBridge = "bridge"
	wayObfs4  = "obfs4"
	wayRandom = "random"
	wayWeb    = "http"
	wayWebTLS = "https"
	wayEmbed  = "embed"
)

// torWayNames returns the ways, the baseline first. embed takes minutes.
func torWayNames(quick bool) []string {
	all := []string{wayTor, wayDirect, wayBridge, wayObfs4, wayRandom, wayWeb, wayWebTLS, wayEmbed}
	if quick {
		return all[:len(all)-1]
	}
	return all
}

// torWays are the clients of a private Tor network.
type torWays struct {
	network *peer.TorNetwork
	bridge  *peer.TorBridge
}

// webCovers are the ways whose bridge is a website, with the bridge's port and the client's.
var webCovers = []struct {
	way         string
	port, local uint16
}{{wayWeb, 80, 9070}, {wayWebTLS, 443, 9080}}

// embedSOCKS is the port of the client whose cover is embed.
const embedSOCKS = 9060

func (n *torWays) serve(ctx context.Context, s *stage) error {
	s.say("start a private Tor network, which takes half a minute")
	obfs4, err := peer.Obfs4(5011)
	if err != nil {
		return err
	}
	if n.network, err = peer.TorSite(ctx, s.Instance); err != nil {
		return err
	}
	if n.bridge, err = n.network.Bridge(ctx, s.Host("bridge"), obfs4, peer.HeddleTransport(s.heddle, "--cover=random", "--cover=embed")); err != nil {
		return err
	}
	for _, c := range []struct {
		name  string
		socks uint16
		line  string
		by    []peer.TorTransport
	}{
		{wayTor, peer.TorSOCKS, "", nil},
		{wayBridge, peer.BridgeSOCKS, n.bridge.Line(""), nil},
		{wayObfs4, peer.Obfs4SOCKS, n.bridge.Line(obfs4.Name), []peer.TorTransport{obfs4}},
		{wayRandom, peer.HeddleSOCKS, n.bridge.Line("heddle"), []peer.TorTransport{peer.HeddleTransport(s.heddle)}},
	} {
		if _, err := n.network.Client(ctx, s.Host("client"), c.name, c.socks, c.line, c.by...); err != nil {
			return err
		}
	}
	site, err := shippedWebsite(ctx, s.heddle)
	if err != nil {
		return err
	}
	for _, c := range webCovers {
		cover, client, _, err := site.Cover(c.way, s.work)
		if err != nil {
			return err
		}
		at, _, _ := strings.Cut(n.bridge.Line(""), " ")
		b, err := peer.StartDisguise(ctx, s.Host("bridge"), s.heddle, cover, c.port, "--to", at)
		if err != nil {
			return err
		}
		if _, err := n.network.Client(ctx, s.Host("client"), c.way, c.local, b.Line(n.bridge), peer.HeddleTransport(s.heddle, "--cover="+client)); err != nil {
			return err
		}
	}
	return writeSizes(s, disguiseSizes)
}

// shippedWebsite is the website that comes with Heddle, beside its binary in the source tree or where `make install` puts both.
func shippedWebsite(ctx context.Context, heddle string) (*peer.Website, error) {
	dir := filepath.Dir(filepath.Dir(heddle))
	for _, file := range []string{filepath.Join(dir, "dist/site-docs.db"), filepath.Join(dir, "share/heddle/site-docs.db")} {
		if _, err := os.Stat(file); err == nil {
			return peer.RecordedWebsite(ctx, heddle, file)
		}
	}
	return nil, &path.Error{What: "the covers http and https", Why: "site-docs.db is neither in dist nor in share/heddle beside the directory of " + heddle,
		Hint: "run the binary that make build or make install made"}
}

// writeSizes writes files that differ in their sizes only, for the web server.
func writeSizes(s *stage, sizes []disguiseSize) error {
	for _, size := range sizes {
		if err := os.WriteFile(filepath.Join(s.Host("web").Dir(), "site", size.name), make([]byte, size.bytes), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// by calls measure with the SOCKS port of a way, or 0 for none.
func (n *torWays) by(ctx context.Context, s *stage, way string, measure func(socks uint16) error) error {
	switch way {
	case wayTor:
		return measure(peer.TorSOCKS)
	case wayBridge:
		return measure(peer.BridgeSOCKS)
	case wayObfs4:
		return measure(peer.Obfs4SOCKS)
	case wayRandom:
		return measure(peer.HeddleSOCKS)
	case wayWeb, wayWebTLS:
		for _, c := range webCovers {
			if c.way == way {
				return measure(c.local)
			}
		}
	case wayEmbed:
		// Its connections send whether there is data or not, so it runs only while it is measured.
		c, err := n.network.Client(ctx, s.Host("client"), way, embedSOCKS, n.bridge.Line("heddle"), peer.HeddleTransport(s.heddle, "--cover=embed"))
		if err != nil {
			return err
		}
		defer c.Stop()
		return measure(embedSOCKS)
	}
	return measure(0)
}

// A link is quiet when it carries at most quietBytes down in quietTime. The rest of a page takes all of it, and idle clients of Tor take 10 kB
// a second. The cover embed goes on for longer than mostTail.
const (
	quietTime  = time.Second
	quietBytes = 40_000
	mostTail   = 10 * time.Second
)

// settled returns the counts of a link as soon as it is quiet. After a download a cover may yet load the rest of a page.
func settled(ctx context.Context, link *lab.Link) (now lab.LinkStatus, err error) {
	if now, err = link.Status(); err != nil {
		return now, err
	}
	for began := time.Now(); time.Since(began) < mostTail; {
		if err := netutil.Sleep(ctx, quietTime); err != nil {
			return now, err
		}
		before := now
		if now, err = link.Status(); err != nil {
			return now, err
		}
		if now.BtoA.DeliveredBytes-before.BtoA.DeliveredBytes <= quietBytes {
			break
		}
	}
	return now, nil
}

// download fetches a file of each size from an origin, with arguments of curl, and counts the bytes on the link until it is quiet again.
func download(ctx context.Context, s *stage, origin string, sizes []disguiseSize, args ...string) (figures []figure, err error) {
	if err := s.ResetLateness(); err != nil {
		return nil, err
	}
	for _, size := range sizes {
		before, err := s.Link("access").Status()
		if err != nil {
			return nil, err
		}
		f, err := peer.Curl(ctx, s.Host("client"), origin+size.name, "/dev/null", args...)
		if err != nil {
			return nil, err
		}
		if f.Bytes != int64(size.bytes) {
			return nil, fmt.Errorf("%d bytes of %d arrived", f.Bytes, size.bytes)
		}
		after, err := settled(ctx, s.Link("access"))
		if err != nil {
			return nil, err
		}
		figures = append(figures, figure{"goodput-" + size.name, "goodput", "kB/s", float64(f.Bytes) / f.Total / 1000})
		if size.bytes == 1_000_000 {
			figures = append(figures, figure{"first-byte", "time", "ms", f.FirstByte * 1000},
				figure{"bytes-down", "bytes", "kB", float64(after.BtoA.DeliveredBytes-before.BtoA.DeliveredBytes) / 1000},
				figure{"bytes-up", "bytes", "kB", float64(after.AtoB.Bytes-before.AtoB.Bytes) / 1000})
		}
	}
	return figures, nil
}

// disguisePaper returns the ratio to Tor of table 3. Figure 7 only says that the goodput of the chopper is comparable. Figure 6 says
// that streams over the chopper lose nothing, at any latency.
func disguisePaper(name string) *float64 {
	for suffix, ratio := range map[string]float64{
		"dsl85/direct/bytes-up": 23_643.0 / 61_162, "dsl85/direct/bytes-down": 1_014_401.0 / 1_075_715,
		"dsl85/random/bytes-up": 63_061.0 / 61_162, "dsl85/random/bytes-down": 1_084_228.0 / 1_075_715,
		"dsl85/http/bytes-up": 966_964.0 / 61_162, "dsl85/http/bytes-down": 11_814_610.0 / 1_075_715,
		"/random/goodput": 1,
	} {
		if strings.HasSuffix(name, suffix) {
			return &ratio
		}
	}
	return nil
}
