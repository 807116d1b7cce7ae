package lab

import (
	"context"
	"os"
	"strings"

	"heddle/lab"
	"heddle/lab/peer"
)

// furniture are the programs that `heddle lab up` starts in a world.
type furniture struct {
	start func(context.Context, *lab.Instance) error // nil for none
	about string                                     // what a person can do with them, in whole lines
}

const torAbout = `fetch through Tor: heddle lab exec client -- curl --socks5 127.0.0.1:9050 -o large.bin http://web.example/large.bin
SOCKS5 ports on client: 9050 Tor, 9051 Tor by a bridge, 9052 Tor by obfs4, 9053 Tor by heddle disguise pt
`

func furnishing(world string) furniture {
	if world == "tor" || strings.HasPrefix(world, "tor-") {
		return furniture{func(ctx context.Context, in *lab.Instance) error {
			heddle, err := os.Executable()
			if err != nil {
				return err
			}
			return peer.TorWorld(ctx, in, heddle)
		}, torAbout}
	}
	return furniture{}
}
