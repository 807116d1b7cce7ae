package peer

import (
	"context"
	"errors"
	"path/filepath"

	"heddle/lab"
)

// SOCKS5 ports on the host client of [TorWorld].
const (
	TorSOCKS    = 9050 // Tor by its guards
	BridgeSOCKS = 9051 // by a plain bridge
	Obfs4SOCKS  = 9052 // by obfs4, if it is installed
	HeddleSOCKS = 9053 // by Heddle's own transport
)

const (
	obfs4Port  = 5011
	heddlePort = 5012
)

// HeddleTransport is this transport of a heddle binary, with flags of `heddle disguise pt`.
func HeddleTransport(heddle string, flags ...string) TorTransport {
	return TorTransport{Name: "heddle", Exec: append([]string{heddle, "disguise", "pt"}, flags...), Port: heddlePort, SOCKS: HeddleSOCKS}
}

// TorSite starts the network and a web server in a world of [lab.Tor]. The server has a large.bin of 1,000,000 bytes.
func TorSite(ctx context.Context, in *lab.Instance) (*TorNetwork, error) {
	n, err := StartTor(ctx, in)
	if err != nil {
		return nil, err
	}
	web := in.Host("web")
	root := filepath.Join(web.Dir(), "site")
	if _, err := Site(root, 1_000_000); err != nil {
		return nil, err
	}
	_, err = WebServer(ctx, web, root, web.Dir(), "web.example")
	return n, err
}

// TorWorld starts what belongs into a world of [lab.Tor] and ends with it: [TorSite], a bridge, and a client for each way to it.
// heddle is the binary of Heddle's own transport; empty leaves that out.
func TorWorld(ctx context.Context, in *lab.Instance, heddle string) error {
	var transports []TorTransport
	if heddle != "" {
		transports = append(transports, HeddleTransport(heddle))
	}
	if obfs4, err := Obfs4(obfs4Port); err == nil {
		obfs4.SOCKS = Obfs4SOCKS
		transports = append(transports, obfs4)
	} else if !errors.Is(err, ErrMissing) {
		return err
	}
	n, err := TorSite(ctx, in)
	if err != nil {
		return err
	}
	bridge, err := n.Bridge(ctx, in.Host("bridge"), transports...)
	if err != nil {
		return err
	}
	client := in.Host("client")
	if _, err := n.Client(ctx, client, "direct", TorSOCKS, ""); err != nil {
		return err
	}
	if _, err := n.Client(ctx, client, "bridge", BridgeSOCKS, bridge.Line("")); err != nil {
		return err
	}
	for _, t := range transports {
		if _, err := n.Client(ctx, client, t.Name, t.SOCKS, bridge.Line(t.Name), t); err != nil {
			return err
		}
	}
	return nil
}
