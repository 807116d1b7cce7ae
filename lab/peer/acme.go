package peer

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"heddle/lab"
)

// ACME is a running Pebble, an authority that Let's Encrypt makes for tests.
type ACME struct {
	*Process
	URL     string // of its directory
	Trusted string // the PEM file of its own server's certificate
	Root    string // the PEM file of the authority's certificate
}

// ACMEOptions say where the authority is and how it works.
type ACMEOptions struct {
	Addr       netip.Addr
	Ports      [2]uint16      // of ACME, and of what tells the root
	Nameserver netip.AddrPort // which it asks where names lead
	Challenges uint16         // the port at which it looks for the answer to a challenge inside TLS
	Valid      time.Duration  // of its certificates
}

// StartACME starts an authority on a host, with its files in work, an existing directory.
func StartACME(ctx context.Context, host *lab.Host, work string, o ACMEOptions) (*ACME, error) {
	program, err := GoProgram(ctx, "pebble", "github.com/letsencrypt/pebble/v2", "/cmd/pebble")
	if err != nil {
		return nil, err
	}
	at := func(i int) string { return netip.AddrPortFrom(o.Addr, o.Ports[i]).String() }
	a := &ACME{URL: "https://" + at(0) + "/dir", Trusted: filepath.Join(work, "server.pem"), Root: filepath.Join(work, "root.pem")}
	key := filepath.Join(work, "key.pem")
	if err := SelfSigned(a.Trusted, key, nil, []netip.Addr{o.Addr}); err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{"listenAddress": at(0), "managementListenAddress": at(1), "certificate": a.Trusted, "privateKey": key,
		"tlsPort": o.Challenges, "retryAfter": map[string]int{"authz": 1, "order": 1}, "profiles": map[string]any{"default": map[string]any{"validityPeriod": int(o.Valid.Seconds())}}}})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(work, "pebble.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	p, err := Start(ctx, host, "env", "PEBBLE_VA_NOSLEEP=1", program, "-config", file, "-dnsserver", o.Nameserver.String())
	if err != nil {
		return nil, err
	}
	a.Process, err = p.OrStop(p.Await(ctx, func() error {
		_, err := Curl(ctx, host, "https://"+at(1)+"/roots/0", a.Root, "--fail", "--cacert", a.Trusted)
		return err
	}))
	return a, err
}
