package peer

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"heddle/lab"
)

// TorTransport is a pluggable transport. The same program serves both ends.
type TorTransport struct {
	Name string
	Exec []string // the program and its arguments
	Port uint16   // where clients of the bridge come
	// Options are the bridge's ServerTransportOptions, NAME=VALUE.
	Options []string
	// SOCKS is the port of its client in [TorWorld].
	SOCKS uint16
}

// Obfs4 is the unmodified obfs4proxy. It fails with [ErrMissing] without it.
func Obfs4(port uint16) (TorTransport, error) {
	file, err := exec.LookPath("obfs4proxy")
	if err != nil {
		return TorTransport{}, missing("obfs4proxy", "apt-get install obfs4proxy")
	}
	return TorTransport{Name: "obfs4", Exec: []string{file}, Port: port}, nil
}

// TorBridge is a bridge of a private Tor network.
type TorBridge struct {
	*Tor
	addr        netip.Addr
	fingerprint string
	lines       map[string]string // of the client's torrc, by transport
}

// Bridge starts a bridge on a host, with these transports, and waits until it serves them.
func (n *TorNetwork) Bridge(ctx context.Context, host *lab.Host, transports ...TorTransport) (*TorBridge, error) {
	b := &TorBridge{addr: host.Addrs()[0], lines: map[string]string{}}
	config := relayConfig(host) + "BridgeRelay 1\nPublishServerDescriptor 0\nExtORPort auto\n"
	for _, t := range transports {
		config += fmt.Sprintf("ServerTransportPlugin %s exec %s\nServerTransportListenAddr %[1]s %[3]v\n",
			t.Name, strings.Join(t.Exec, " "), netip.AddrPortFrom(b.addr, t.Port))
		if len(t.Options) > 0 {
			config += fmt.Sprintf("ServerTransportOptions %s %s\n", t.Name, strings.Join(t.Options, " "))
		}
	}
	var err error
	if b.Tor, err = n.start(ctx, host, "bridge", config); err != nil {
		return nil, err
	}
	_, err = b.OrStop(b.AwaitFor(ctx, torPatience, func() (err error) {
		if err := b.bootstrapped(); err != nil {
			return err
		}
		if b.fingerprint, err = match(filepath.Join(b.Dir, "fingerprint"), fingerprint); err != nil {
			return err
		}
		for _, t := range transports {
			if b.lines[t.Name], err = b.read(t); err != nil {
				return err
			}
		}
		return nil
	}))
	return b, err
}

// Line is what follows the word Bridge in a client's torrc; transport is empty for a plain bridge.
func (b *TorBridge) Line(transport string) string {
	if transport == "" {
		return fmt.Sprintf("%s %s", netip.AddrPortFrom(b.addr, torORPort), b.fingerprint)
	}
	return b.lines[transport]
}

var bridgeArgument = regexp.MustCompile(` [a-z0-9-]+=\S*`)

// read makes the line for a transport from the file that it leaves in its state directory. Its address there is a placeholder.
func (b *TorBridge) read(t TorTransport) (string, error) {
	text, err := os.ReadFile(filepath.Join(b.Dir, "pt_state", t.Name+"_bridgeline.txt"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Bridge "+t.Name+" "); ok {
			return fmt.Sprintf("%s %s %s%s", t.Name, netip.AddrPortFrom(b.addr, t.Port), b.fingerprint,
				strings.Join(bridgeArgument.FindAllString(rest, -1), "")), nil
		}
	}
	return "", fmt.Errorf("the file of %s holds no bridge line", t.Name)
}
