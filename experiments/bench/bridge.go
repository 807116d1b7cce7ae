package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"heddle/internal/netutil"
	"heddle/lab"
	"heddle/lab/peer"
)

// BridgeOptions control the benches of a bridge.
type BridgeOptions struct {
	Heddle   string        // path of the binary under test
	Probes   int           // of each kind, for [Probes]
	Length   time.Duration // of [Soak]
	Links    int           // for [Randomness]
	Progress io.Writer
}

// proberNetworks and proberAddresses are where probes come from. A bridge bounds strangers by network and by address.
const (
	proberNetworks  = 8
	proberAddresses = 2 // in each network
)

// bridgeWorld has a bridge, a user and a prober.
func bridgeWorld() lab.World {
	w := lab.World{Name: "bridge", About: "a bridge, a user of it, and a prober", Client: "user",
		Hosts: []lab.HostSpec{{Name: "bridge"}, {Name: "user"}, {Name: "prober"}},
		Links: []lab.LinkSpec{
			{Name: "user", A: lab.End{Host: "bridge", Device: "user", Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}},
				B: lab.End{Host: "user", Device: "net", Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}},
			{Name: "prober", A: lab.End{Host: "bridge", Device: "prober", Addrs: []netip.Prefix{netip.MustParsePrefix("10.1.0.1/16")}},
				B: lab.End{Host: "prober", Device: "net", Addrs: proberPrefixes()}},
		}}
	return w
}

func proberPrefixes() (all []netip.Prefix) {
	for network := range proberNetworks {
		for host := range proberAddresses {
			all = append(all, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(network + 1), byte(host + 1)}), 16))
		}
	}
	return all
}

// Ports of the host bridge, and of the user's loopback.
const (
	bridgePort = 4000
	silentPort = 5000
	zerosPort  = 6000
	dialPort   = 7000
)

// bridged is the world while it is up.
type bridged struct {
	BridgeOptions
	*lab.Instance
	*Table
}

func upBridged(ctx context.Context, bench string, o BridgeOptions) (*bridged, error) {
	in, err := lab.Up(ctx, bridgeWorld(), lab.Options{Seed: 1})
	if err != nil {
		return nil, err
	}
	b := &bridged{BridgeOptions: o, Instance: in, Table: NewTable(bench)}
	if err := b.zeros(ctx); err != nil {
		return nil, errors.Join(err, in.Down())
	}
	return b, nil
}

// zeros is the target of bridges: it sends zeros for as long as it is read.
func (b *bridged) zeros(ctx context.Context) error {
	return b.listen(ctx, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), zerosPort), func(c *net.TCPConn) {
		go io.Copy(io.Discard, c)
		block := make([]byte, 64<<10)
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
}

// listen serves connections to the host bridge until ctx ends.
func (b *bridged) listen(ctx context.Context, at netip.AddrPort, serve func(*net.TCPConn)) error {
	return b.Host("bridge").Do(func() error {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		go netutil.Serve(ctx, l, func(c net.Conn) {
			go func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				serve(c.(*net.TCPConn))
			}()
		})
		return nil
	})
}

// bridge starts a bridge on its host. file is a bridge.toml of its user.
func (b *bridged) bridge(ctx context.Context, port uint16) (p *peer.Process, file string, err error) {
	host := b.Host("bridge")
	dir := filepath.Join(host.Dir(), fmt.Sprint("bridge-", port))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", err
	}
	key, file := filepath.Join(dir, "bridge.pem"), filepath.Join(dir, "client.toml")
	address := fmt.Sprint("10.0.0.1:", port)
	if out, err := host.Command(ctx, b.Heddle, "disguise", "keys", "--address", address, "--identity", key, "--client", file).CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("heddle disguise keys: %w: %s", err, out)
	}
	p, err = peer.Start(ctx, host, b.Heddle, "disguise", "serve", "--listen", fmt.Sprint(":", port), "--identity", key,
		"--state", filepath.Join(dir, "state"), "--to", fmt.Sprint("127.0.0.1:", zerosPort))
	if err != nil {
		return nil, "", err
	}
	return p, file, p.AwaitLog(ctx, "listening on")
}

// dial starts the user's end of a bridge. Each connection to dialPort is a link of its own.
func (b *bridged) dial(ctx context.Context, file string, flags ...string) (*peer.Process, error) {
	p, err := peer.Start(ctx, b.Host("user"), b.Heddle, append([]string{"disguise", "dial", file, "--listen", fmt.Sprint("127.0.0.1:", dialPort), "--to", "bridge"}, flags...)...)
	if err != nil {
		return nil, err
	}
	return p, p.AwaitLog(ctx, "disguise is up")
}

// download reads so many bytes by a link of its own, and returns the goodput in kB/s.
func (b *bridged) download(ctx context.Context, bytes int64) (float64, error) {
	began := time.Now()
	var c net.Conn
	err := b.Host("user").Do(func() (err error) {
		c, err = (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", dialPort))
		return err
	})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := io.CopyN(io.Discard, c, bytes); err != nil {
		return 0, fmt.Errorf("download by the bridge: %w", err)
	}
	return float64(bytes) / 1000 / time.Since(began).Seconds(), nil
}

// usage adds the memory and the descriptors of a process to the table.
func (b *bridged) usage(name, baseline string, p *peer.Process, round int) error {
	memory, err := resident(p.PID())
	if err != nil {
		return err
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		return err
	}
	b.Add(Figure{Case: name + "/memory", Metric: "memory", Unit: "MB", Group: name, Baseline: baseline + "/memory"}, round, memory)
	b.Add(Figure{Case: name + "/descriptors", Metric: "descriptors", Unit: "", Group: name, Baseline: baseline + "/descriptors"}, round, float64(len(open)))
	return nil
}

func (b *bridged) say(format string, args ...any) { fmt.Fprintf(b.Progress, format+"\n", args...) }
