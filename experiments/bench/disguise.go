package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"heddle/lab"
	"heddle/lab/peer"
)

// disguiseSizes are sizes of downloads in bytes (StegoTorus, figure 7 and table 3), by the name of their figure.
var disguiseSizes = []struct {
	name  string
	bytes int
}{{"100kB", 100_000}, {"300kB", 300_000}, {"1MB", 1_000_000}}

// Disguise is table 3 and figure 7 of StegoTorus: goodput of downloads over a DSL link, and the bytes on that link, directly, by
// Tor, and by Tor over transports, relative to Tor.
func Disguise() Bench {
	return Bench{
		name: "disguise",
		topologies: func(quick bool) []*topology {
			sizes := disguiseSizes
			if quick {
				sizes = sizes[len(sizes)-1:]
			}
			return []*topology{disguiseTopology("dsl85", 85*time.Millisecond, sizes), disguiseTopology("dsl450", 450*time.Millisecond, sizes)}
		},
		paper: disguisePaper,
	}
}

type disguiseSize = struct {
	name  string
	bytes int
}

func disguiseTopology(name string, rtt time.Duration, sizes []disguiseSize) *topology {
	t := &topology{name: name, world: lab.Tor("tor", lab.DSL(rtt)), serve: serveDisguise, check: checkDisguise}
	for _, c := range []struct {
		name  string
		socks uint16 // 0 is none
	}{{"tor", peer.TorSOCKS}, {"direct", 0}, {"obfs4", peer.Obfs4SOCKS}, {"random", peer.HeddleSOCKS}} {
		t.cases = append(t.cases, variant{c.name, func(ctx context.Context, s *stage, _ int) ([]figure, error) {
			return download(ctx, s, c.socks, sizes)
		}})
	}
	return t
}

func checkDisguise() error {
	_, err := peer.Obfs4(0)
	return err
}

func serveDisguise(ctx context.Context, s *stage) error {
	s.say("start a private Tor network, which takes half a minute")
	if err := peer.TorWorld(ctx, s.Instance, s.heddle); err != nil {
		return err
	}
	for _, size := range disguiseSizes {
		// The files differ in their sizes only.
		if err := os.WriteFile(filepath.Join(s.Host("web").Dir(), "site", size.name), make([]byte, size.bytes), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// download fetches a file of each size, and counts the bytes on the link.
func download(ctx context.Context, s *stage, socks uint16, sizes []disguiseSize) (figures []figure, err error) {
	var proxy []string
	if socks != 0 {
		proxy = peer.BySOCKS(socks)
	}
	if err := s.ResetLateness(); err != nil {
		return nil, err
	}
	for _, size := range sizes {
		before, err := s.Link("access").Status()
		if err != nil {
			return nil, err
		}
		f, err := peer.Curl(ctx, s.Host("client"), "http://web.example/"+size.name, "/dev/null", proxy...)
		if err != nil {
			return nil, err
		}
		if f.Bytes != int64(size.bytes) {
			return nil, fmt.Errorf("%d bytes of %d arrived", f.Bytes, size.bytes)
		}
		after, err := s.Link("access").Status()
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

// disguisePaper returns the ratio to Tor of table 3, and for goodput of figure 7, which says no more than that the chopper's is
// comparable.
func disguisePaper(name string) *float64 {
	for suffix, ratio := range map[string]float64{
		"dsl85/direct/bytes-up": 23_643.0 / 61_162, "dsl85/direct/bytes-down": 1_014_401.0 / 1_075_715,
		"dsl85/random/bytes-up": 63_061.0 / 61_162, "dsl85/random/bytes-down": 1_084_228.0 / 1_075_715,
	} {
		if strings.HasSuffix(name, suffix) {
			return &ratio
		}
	}
	return nil
}
