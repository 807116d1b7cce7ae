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
		b, l, err := s.bridge(at, &info)
		if err != nil {
			failed = goptlib.SmethodError(at.MethodName, ascii(err.Error()))
			continue
		}
		goptlib.SmethodArgs(at.MethodName, l.Addr(), published(b.Args()))
		serve = func() error { return errors.Join(b.Serve(ctx, l), b.Close()) }
	}
	goptlib.SmethodsDone()
	if serve == nil {
		return none(failed)
	}
	return serve()
}

// bridge makes the bridge for one address. Nothing is left open on an error.
func (s *started) bridge(at goptlib.Bindaddr, info *goptlib.ServerInfo) (Bridge, net.Listener, error) {
	dir, err := goptlib.MakeStateDir()
	if err != nil {
		return nil, nil, err
	}
	l, err := s.listen("tcp", at.Addr.String())
	if err != nil {
		return nil, nil, err
	}
	b, err := s.NewBridge(BridgeOptions{Dir: filepath.Join(dir, handshake.Transport), Settings: at.Options, Target: target(info)})
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	if err := writeLine(filepath.Join(dir, LineFile), netutil.AddrPort(l.Addr()), b.Args()); err != nil {
		return nil, nil, errors.Join(err, l.Close(), b.Close())
	}
	return b, l, nil
}

// target connects to the ExtORPort of the parent, or its ORPort.
func target(info *goptlib.ServerInfo) func(context.Context, net.Addr) (net.Conn, error) {
	var lines connlimit.Lines
	return func(ctx context.Context, client net.Addr) (net.Conn, error) {
		c, err := goptlib.DialOrWithDialer(&net.Dialer{Timeout: orPatience}, info, client.String(), handshake.Transport)
		if err != nil && ctx.Err() == nil && lines.Take(time.Now()) {
			slog.Error("cannot connect to Tor for a client", "error", err)
		}
		return c, err
	}
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
