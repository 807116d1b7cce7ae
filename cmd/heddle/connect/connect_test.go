package connect

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"heddle/path"
)

// loopDialer connects by the machine's own routes, and takes only some addresses for reachable.
type loopDialer struct {
	path.System
	refuse netip.Addr
}

func (d loopDialer) Dial(ctx context.Context, to path.Target) (net.Conn, error) {
	if to.Addr == d.refuse {
		return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
}

func TestConnectJoinsStreams(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	heard := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		all, _ := io.ReadAll(conn) // to the end of stdin
		heard <- string(all)
		io.WriteString(conn, "answer")
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	conn, at, err := dialAny(t.Context(), loopDialer{}, "127.0.0.1", uint16(port))
	if err != nil || at != netip.MustParseAddr("127.0.0.1") {
		t.Fatal(at, err)
	}
	var out bytes.Buffer
	if err := joinStreams(t.Context(), conn, strings.NewReader("question"), &out); err != nil || out.String() != "answer" {
		t.Errorf("got %q, %v", &out, err)
	}
	if got := <-heard; got != "question" {
		t.Errorf("the server heard %q", got)
	}
	if _, _, err := dialAny(t.Context(), loopDialer{refuse: at}, "127.0.0.1", uint16(port)); err == nil || !strings.Contains(err.Error(), "connect to 127.0.0.1:") {
		t.Errorf("an address that does not answer: %v", err)
	}
}

func TestConnectEndsWithItsContext(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	stdin, _ := io.Pipe() // nobody types
	joined := make(chan error, 1)
	go func() { joined <- joinStreams(ctx, ours, stdin, io.Discard) }()
	cancel()
	if err := <-joined; err != nil {
		t.Error(err)
	}
}
