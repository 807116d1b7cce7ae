package bench

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"heddle/lab"
	"heddle/lab/peer"
)

// fastTopology is a link of 100 Mbit/s, which shows what covers carry without Tor. Each way is a link that stays, and each download a stream
// of it. The baseline is without a cover.
func fastTopology(name string, rtt time.Duration, sizes ...disguiseSize) *topology {
	t := &topology{name: name, world: lab.Tor("fast", lab.Access{RTT: rtt, Down: 100_000_000, Up: 100_000_000}), serve: serveFast}
	for i, way := range fastWays {
		t.cases = append(t.cases, variant{way, func(ctx context.Context, s *stage, _ int) ([]figure, error) {
			if way == wayDirect {
				return download(ctx, s, "http://web.example/", sizes)
			}
			return download(ctx, s, fmt.Sprintf("http://127.0.0.1:%d/", fastPort+i), sizes)
		}})
	}
	return t
}

var fastWays = []string{wayDirect, wayRandom, wayWeb, wayWebTLS}

// fastPort is the client's port of the first way.
const fastPort = 7100

func serveFast(ctx context.Context, s *stage) error {
	host := s.Host("web")
	root := filepath.Join(host.Dir(), "site")
	if _, err := peer.Site(root, int64(largeSize.bytes)); err != nil {
		return err
	}
	if err := writeSizes(s, append(disguiseSizes[:len(disguiseSizes):len(disguiseSizes)], largeSize)); err != nil {
		return err
	}
	if _, err := peer.WebServer(ctx, host, root, host.Dir(), "web.example"); err != nil {
		return err
	}
	site, err := shippedWebsite(ctx, s.heddle)
	if err != nil {
		return err
	}
	target := netip.AddrPortFrom(host.Addrs()[0], 80).String()
	for i, way := range fastWays[1:] {
		cover, client := way, way
		if way != wayRandom {
			if cover, client, _, err = site.Cover(way, s.work); err != nil {
				return err
			}
		}
		b, err := peer.StartDisguise(ctx, s.Host("bridge"), s.heddle, cover, uint16(8100+i), "--destinations", "--allow", target)
		if err != nil {
			return err
		}
		p, err := s.start(ctx, "disguise", "dial", b.Client, "--cover", client, "--listen", fmt.Sprint("127.0.0.1:", fastPort+1+i), "--to", target)
		if err == nil {
			err = p.AwaitLog(ctx, "disguise is up")
		}
		if err != nil {
			return err
		}
	}
	return nil
}
