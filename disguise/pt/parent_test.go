package pt

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"heddle/disguise/handshake"
	"heddle/internal/netutil"
	"heddle/internal/polltest"
	"heddle/path"
)

// asTransport makes this program a transport whose links are plain TCP connections, for tests that are its parent.
const asTransport = "HEDDLE_TEST_TRANSPORT"

func TestMain(m *testing.M) {
	if os.Getenv(asTransport) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	slog.SetDefault(slog.New(LogHandler()))
	if err := Run(ctx, Options{Version: "1.0", Stdin: os.Stdin, Stdout: os.Stdout, Dial: plainDial, NewBridge: newPlainBridge}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func plainDial(ctx context.Context, to handshake.Line, out path.Path) (net.Conn, error) {
	if out == nil {
		out = path.NewSystem(0)
	}
	slog.Info("dial", "key", to.Key, "token", string(to.Token))
	c, err := path.Dial(ctx, out, path.At(to.Address))
	if err != nil {
		return nil, err
	}
	return leaving{c}, nil
}

// leaving is a link that writes a line when it tells the bridge that it ends.
type leaving struct{ net.Conn }

func (l leaving) Leave()            { slog.Info("the bridge was told") }
func (l leaving) CloseWrite() error { return l.Conn.(*net.TCPConn).CloseWrite() }

type plainBridge struct{ BridgeOptions }

func newPlainBridge(_ context.Context, o BridgeOptions) (b Bridge, err error) {
	if o.Settings["refuse"] != nil {
		return b, &path.Error{What: "bridge", Why: "it is tolɑ to", Hint: "tell it nothing"} // with a letter that no line may hold
	}
	id, _, err := handshake.LoadOrCreateIdentity(filepath.Join(o.Dir, "bridge.key"))
	if err != nil {
		return b, err
	}
	b.Server, b.Args = &plainBridge{o}, handshake.Args{Key: id.Public(), Covers: o.Settings["cover"]}
	if token := o.Settings["token"]; token != nil {
		b.Args.Token = []byte(token[0])
	}
	if file := o.Settings["behind"]; file != nil {
		b.Listener, err = net.Listen("unix", file[0])
	}
	return b, err
}

// client is the address that a test gives a client, or its own.
func (b *plainBridge) client(c net.Conn) net.Addr {
	said := b.Settings["client"]
	if said == nil {
		return c.RemoteAddr()
	}
	at, err := netip.ParseAddrPort(said[0])
	if err != nil {
		return &net.UnixAddr{} // as of a visitor that nobody knows
	}
	return net.TCPAddrFromAddrPort(at)
}

func (b *plainBridge) Serve(ctx context.Context, listeners ...net.Listener) error {
	return netutil.Serve(ctx, listeners[0], func(near net.Conn) {
		go func() {
			defer near.Close()
			far, err := b.Target(ctx, b.client(near))
			if err != nil {
				return
			}
			defer far.Close()
			netutil.Pipe(ctx, netutil.Side{Reader: near, Writer: near}, netutil.Side{Reader: far, Writer: far}, func(error) {
				near.Close()
				far.Close()
			})
		}()
	})
}

func (b *plainBridge) Close() error { return nil }

// transport is a child of a test.
type transport struct {
	*exec.Cmd
	t     *testing.T
	stdin io.Closer
	lines chan string // what it writes; closed at its end
}

// start starts a transport with an environment of NAME=VALUE.
func start(t *testing.T, environment ...string) *transport {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startAs(t, environment, self)
}

func startAs(t *testing.T, environment []string, name string, args ...string) *transport {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(environment, asTransport+"=1", "PATH="+os.Getenv("PATH"))
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &transport{cmd, t, stdin, make(chan string, 100)}
	go func() {
		defer close(c.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			c.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		stdout.Close() // which a child of its own may hold
		for range c.lines {
		}
		cmd.Wait()
	})
	return c
}

// line returns the next line, or an empty one at the end.
func (c *transport) line() string {
	c.t.Helper()
	select {
	case line := <-c.lines:
		return line
	case <-time.After(polltest.Patience):
		c.t.Fatal("the transport writes no line")
	}
	return ""
}

// until returns the next line with the prefix.
func (c *transport) until(prefix string) string {
	c.t.Helper()
	for {
		line := c.line()
		if strings.HasPrefix(line, prefix) {
			return line
		}
		if line == "" {
			c.t.Fatalf("the transport ends without a line that begins with %s", prefix)
		}
	}
}

// code waits for the end, and returns the exit status.
func (c *transport) code() int {
	c.t.Helper()
	for c.line() != "" {
	}
	c.Wait()
	return c.ProcessState.ExitCode()
}

var addressAfter = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// method waits until the transport offers its method, and returns the address.
func (c *transport) method(word string) string {
	c.t.Helper()
	line := c.until(word + " ")
	at := addressAfter.FindString(line)
	if at == "" {
		c.t.Fatal(line)
	}
	c.until(word + "S DONE")
	return at
}

// clientEnvironment and serverEnvironment are what Tor gives; later values win.
func clientEnvironment(more ...string) []string {
	return append([]string{"TOR_PT_MANAGED_TRANSPORT_VER=1", "TOR_PT_CLIENT_TRANSPORTS=heddle", "TOR_PT_EXIT_ON_STDIN_CLOSE=1"}, more...)
}

func serverEnvironment(state string, more ...string) []string {
	return append([]string{"TOR_PT_MANAGED_TRANSPORT_VER=1", "TOR_PT_SERVER_TRANSPORTS=heddle", "TOR_PT_SERVER_BINDADDR=heddle-127.0.0.1:0",
		"TOR_PT_ORPORT=127.0.0.1:1", "TOR_PT_STATE_LOCATION=" + state, "TOR_PT_EXIT_ON_STDIN_CLOSE=1"}, more...)
}
