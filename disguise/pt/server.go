package pt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	goptlib "gitlab.torproject.org/tpo/anti-censorship/pluggable-transports/goptlib"

	"heddle/disguise/handshake"
	"heddle/internal/atomicfile"
	"heddle/internal/connlimit"
	"heddle/internal/netutil"
	"heddle/path"
)

// orPatience is the time for a connection to the parent, before goptlib authenticates within five seconds.
const orPatience = 10 * time.Second

// LineFile is the file with the bridge line, in the directory of the parent for all transports' state.
const LineFile = handshake.Transport + "_bridgeline.txt"

// server serves links, and connects each to the parent.
func (s *started) server(ctx context.Context) error {
	info, err := goptlib.ServerSetup(nil)
	if err != nil {
		return err
	}
	goptlib.ReportVersion("heddle", s.Version)
	var serve func() error
	var failed error
	for _, at := range info.Bindaddrs {
		if at.MethodName != handshake.Transport {
			_ = goptlib.SmethodError(at.MethodName, "no such transport")
			continue
		}
		b, reached, err := s.bridge(ctx, at, &info)
		if err != nil {
			failed = goptlib.SmethodError(at.MethodName, explained(err))
			continue
		}
		goptlib.SmethodArgs(at.MethodName, reached, published(b.Args))
		serve = func() error { return errors.Join(b.Serve(ctx, b.Listener), b.Close()) }
	}
	goptlib.SmethodsDone()
	if serve == nil {
		return none(failed)
	}
	return serve()
}

// bridge makes the bridge for one address, with its listener. reached is where clients come. Nothing is left open on an error.
func (s *started) bridge(ctx context.Context, at goptlib.Bindaddr, info *goptlib.ServerInfo) (b Bridge, reached net.Addr, err error) {
	dir, err := goptlib.MakeStateDir()
	if err != nil {
		return b, nil, err
	}
	if b, err = s.NewBridge(ctx, BridgeOptions{Dir: filepath.Join(dir, handshake.Transport), Settings: at.Options, Target: target(info)}); err != nil {
		return b, nil, err
	}
	if reached, err = s.open(&b, at.Addr); err != nil {
		return b, nil, errors.Join(err, b.Close())
	}
	if err := writeLine(filepath.Join(dir, LineFile), netutil.AddrPort(reached), b.Args); err != nil {
		return b, nil, errors.Join(err, b.Listener.Close(), b.Close())
	}
	return b, reached, nil
}

// open listens where the parent says, unless a web server does. It returns where clients come, which the parent publishes.
func (s *started) open(b *Bridge, at *net.TCPAddr) (reached net.Addr, err error) {
	if b.Listener == nil {
		if b.Listener, err = s.listen("tcp", at.String()); err != nil {
			return nil, err
		}
		return b.Listener.Addr(), nil
	}
	if at.Port == 0 { // which the parent says if nobody told it
		return nil, errors.Join(&path.Error{What: "ServerTransportListenAddr", Why: "nothing says at which port the web server in front of the bridge has its clients",
			Hint: "write ServerTransportListenAddr heddle 0.0.0.0:443 into torrc"}, b.Listener.Close())
	}
	return at, nil
}

// target connects to the ExtORPort of the parent, or its ORPort.
func target(info *goptlib.ServerInfo) func(context.Context, net.Addr) (net.Conn, error) {
	var lines connlimit.Lines
	return func(ctx context.Context, client net.Addr) (net.Conn, error) {
		c, err := goptlib.DialOrWithDialer(&net.Dialer{Timeout: orPatience}, info, told(client), handshake.Transport)
		if err != nil && ctx.Err() == nil && lines.Take(time.Now()) {
			slog.Error("cannot connect to Tor for a client", "error", err)
		}
		return c, err
	}
}

// told is what the parent learns of a client: nothing if its address is unknown. Tor takes neither port 0 nor a zone.
func told(client net.Addr) string {
	at := netutil.AddrPort(client)
	if !at.IsValid() {
		return ""
	}
	return netip.AddrPortFrom(at.Addr().WithZone(""), max(at.Port(), 1)).String()
}

// published are the arguments that the parent publishes in the description of the bridge, unless it keeps that to itself. A token is
// for those who were given it.
func published(a handshake.Args) goptlib.Args {
	a.Token = nil
	args := goptlib.Args{}
	for _, pair := range a.Pairs() {
		args.Add(pair[0], pair[1])
	}
	return args
}

const lineText = `# The lines of a client's torrc for this bridge. Replace what stands in angle brackets: ADDRESS by that which
# clients reach, and FINGERPRINT by that in the file fingerprint of Tor's DataDirectory, or by nothing.
UseBridges 1
ClientTransportPlugin heddle exec /usr/local/bin/heddle disguise pt
%s
`

// writeLine writes the bridge line into a file that only its owner may read, since it is all that a client needs.
func writeLine(file string, at netip.AddrPort, a handshake.Args) error {
	address := fmt.Sprintf("<ADDRESS>:%d", at.Port())
	if !at.Addr().IsUnspecified() {
		address = at.String()
	}
	line := "Bridge " + handshake.Transport + " " + address + " " + fingerprintBeside(filepath.Dir(file))
	for _, pair := range a.Pairs() {
		line += " " + pair[0] + "=" + pair[1]
	}
	return atomicfile.WritePrivate(file, fmt.Appendf(nil, lineText, line))
}

// fingerprintBeside returns the fingerprint of the Tor whose DataDirectory holds the directory of states, or a placeholder.
func fingerprintBeside(states string) string {
	text, _ := os.ReadFile(filepath.Join(filepath.Dir(states), "fingerprint"))
	words := strings.Fields(string(text))
	if len(words) == 2 && len(words[1]) == 40 && strings.Trim(words[1], "0123456789ABCDEF") == "" {
		return words[1]
	}
	return "<FINGERPRINT>"
}
