// Package pt is both ends of a managed pluggable transport (Tor's pt-spec), for Tor, Tor Browser and other programs that start
// transports. Package goptlib reads the environment and writes the lines; this package joins it with links.
//
// It does no more than one transport, called heddle. Do not use it without such a parent: package client and package bridge are
// the same links without Tor.
package pt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	goptlib "gitlab.torproject.org/tpo/anti-censorship/pluggable-transports/goptlib"

	"heddle/disguise/handshake"
	"heddle/internal/errhint"
	"heddle/path"
)

// Options are what the parent does not say.
type Options struct {
	Version string // of this program
	// Stdin and Stdout lead to the parent.
	Stdin  io.Reader
	Stdout io.Writer
	// Dial opens a link to a bridge. out is the way to it through the parent's proxy, or nil.
	Dial      func(ctx context.Context, to handshake.Line, out path.Path) (net.Conn, error)
	NewBridge func(context.Context, BridgeOptions) (Bridge, error)

	listen func(network, address string) (net.Listener, error) // tests replace it
}

// BridgeOptions are what a parent says about a bridge.
type BridgeOptions struct {
	Dir      string              // for its state; it may not exist yet
	Settings map[string][]string // of ServerTransportOptions
	// Target connects to the parent for a client at an address. Its port may be 0, and all of it unknown, as behind a web server.
	Target func(ctx context.Context, client net.Addr) (net.Conn, error)
}

// Bridge is a server and what has to be said of it.
type Bridge struct {
	Server
	Args handshake.Args // of its bridge line
	// Listener is where a web server in front of the bridge connects. That one listens at the address that the parent gives, where
	// clients come. Without a web server it is nil, and the transport listens there.
	Listener net.Listener
}

// Server serves links.
type Server interface {
	// Serve ends when ctx does, and then ends its links in order.
	Serve(ctx context.Context, listeners ...net.Listener) error
	Close() error // after Serve, or without
}

// started is what the parent gave.
type started struct {
	Options
	log *lines
}

// Run is the transport, from the parent's environment to its end: ctx ends, the parent closes Stdin if it announced to, or is gone.
// These are ends in order, and no errors.
func Run(ctx context.Context, o Options) error {
	if o.listen == nil {
		o.listen = func(network, address string) (net.Listener, error) {
			var plain net.ListenConfig
			plain.SetMultipathTCP(false) // whose additional addresses are no paths of ours
			return plain.Listen(ctx, network, address)
		}
	}
	parent := os.Getppid() // it may end as soon as it has read a line
	stdout := &lines{to: o.Stdout}
	goptlib.Stdout = stdout
	if os.Getenv("TOR_PT_MANAGED_TRANSPORT_VER") == "" {
		_ = stdout.envError("no TOR_PT_MANAGED_TRANSPORT_VER environment variable")
		return &path.Error{What: "disguise pt", Why: "no program that uses pluggable transports started it",
			Hint: "`heddle disguise torrc` prints the lines with which Tor starts it"}
	}
	if err := stdout.checkEnvironment(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		awaitParentsEnd(ctx, parent, o.Stdin)
	}()
	s := &started{o, stdout}
	if os.Getenv("TOR_PT_CLIENT_TRANSPORTS") != "" {
		return s.client(ctx)
	}
	return s.server(ctx)
}

// environment are the variables of the parent whose values goptlib repeats in its lines. It panics where they hold other bytes than
// those of a line.
var environment = []string{"TOR_PT_MANAGED_TRANSPORT_VER", "TOR_PT_CLIENT_TRANSPORTS", "TOR_PT_SERVER_TRANSPORTS", "TOR_PT_SERVER_BINDADDR",
	"TOR_PT_SERVER_TRANSPORT_OPTIONS", "TOR_PT_ORPORT", "TOR_PT_EXTENDED_SERVER_PORT"}

func (l *lines) checkEnvironment() error {
	for _, name := range environment {
		if value := os.Getenv(name); value != ascii(value) {
			return l.envError(name + " holds bytes that no line may hold")
		}
	}
	if os.Getenv("TOR_PT_CLIENT_TRANSPORTS") != "" && os.Getenv("TOR_PT_SERVER_TRANSPORTS") != "" {
		return l.envError("both TOR_PT_CLIENT_TRANSPORTS and TOR_PT_SERVER_TRANSPORTS are set")
	}
	return nil
}

// awaitParentsEnd returns when the parent closes stdin, if it announced to do that, or is gone, or when ctx ends.
func awaitParentsEnd(ctx context.Context, parent int, stdin io.Reader) {
	if os.Getenv("TOR_PT_EXIT_ON_STDIN_CLOSE") == "1" {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, stdin)
		}()
		select {
		case <-ended:
		case <-ctx.Done():
		}
		return
	}
	// A process whose parent ended gets another one, except on Windows.
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for parent == os.Getppid() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// lines writes whole lines to the parent, one at a time.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

// envError reports an error that goptlib does not find.
func (l *lines) envError(why string) error {
	line := "ENV-ERROR " + why
	fmt.Fprintln(l, line)
	return errors.New(line)
}

// status reports how a connection to a bridge went (pt-spec, section 3.3.5).
func (l *lines) status(bridge netip.AddrPort, err error) {
	result := "CONNECT=Success"
	if err != nil {
		result = "CONNECT=Failed ERRSTR=" + quoted(err.Error())
	}
	fmt.Fprintf(l, "STATUS TRANSPORT=%s ADDRESS=%v %s\n", handshake.Transport, bridge, result)
}

// ascii replaces what a line may not hold.
func ascii(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}

var inQuotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoted(text string) string { return `"` + inQuotes.Replace(ascii(text)) + `"` }

// explained is an error as a line may hold it, with its hint.
func explained(err error) string {
	text := err.Error()
	if hint := errhint.Of(err); hint != "" {
		text += "; hint: " + hint
	}
	return ascii(text)
}

// none is the error of a transport without any method.
func none(failed error) error {
	return cmp.Or(failed, error(&path.Error{What: "disguise pt", Why: "the parent asks for no transport called " + handshake.Transport,
		Hint: "write the name heddle in the lines of torrc"}))
}
