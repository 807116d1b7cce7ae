package peer

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"heddle/lab"
)

// QUICServers are the libraries of the HTTP/3 servers that [QUICServer] starts. They use the library's defaults, except
// that quiche is set to allow migration. All speak QUIC version 1 (RFC 9000); quic-go and aioquic also version 2 (RFC
// 9369). The benches compare them. [QUICServer] also starts "ngtcp2", if the package of its server is installed; it does not
// count the bytes of a POST.
var QUICServers = []string{"quic-go", "aioquic", "quiche"}

// gtlsserver is the server of the package ngtcp2-server.
const gtlsserver = "gtlsserver"

// QUICConfig says where a QUIC server listens and what it serves.
type QUICConfig struct {
	Addr  netip.AddrPort
	Names []string                         // of its certificate; [QUIC.Fetch] asks for the first
	Work  string                           // existing directory for its certificate and key
	Root  string                           // directory of files to serve as well; quic-go only
	Say   func(format string, args ...any) // reports builds, which may take minutes; may be nil
}

// QUIC is an HTTP/3 server that answers GET /N with N bytes, and POST with the number of bytes received.
type QUIC struct {
	*Process
	Certificate string // PEM file that clients must trust
	config      QUICConfig
	client      string // the program of the quic-go client
}

// QUICServer starts one of [QUICServers], or ngtcp2, on a host. It builds missing parts into the user's cache first.
func QUICServer(ctx context.Context, host *lab.Host, library string, c QUICConfig) (*QUIC, error) {
	if c.Say == nil {
		c.Say = func(string, ...any) {}
	}
	if len(c.Names) == 0 {
		return nil, errors.New("a QUIC server needs a name for its certificate")
	}
	command, err := quicCommand(ctx, library, c)
	if err != nil {
		return nil, err
	}
	q := &QUIC{config: c, Certificate: c.certificate()}
	if q.client, err = quicGo(ctx); err != nil {
		return nil, err
	}
	if err := SelfSigned(q.Certificate, c.key(), c.Names, []netip.Addr{c.Addr.Addr()}); err != nil {
		return nil, err
	}
	if q.Process, err = Start(ctx, host, command[0], command[1:]...); err != nil {
		return nil, err
	}
	_, err = q.OrStop(q.Await(ctx, func() error { return listens(host, c.Addr) }))
	return q, err
}

// listens fails until a program in a host has an UDP socket at an address. Not every server says when it listens.
func listens(host *lab.Host, at netip.AddrPort) error {
	ip := at.Addr().As4()
	want := fmt.Sprintf(" %08X:%04X ", binary.NativeEndian.Uint32(ip[:]), at.Port())
	return host.Do(func() error {
		sockets, err := os.ReadFile("/proc/thread-self/net/udp")
		if err == nil && !strings.Contains(string(sockets), want) {
			err = fmt.Errorf("nothing listens at %v", at)
		}
		return err
	})
}

func (c QUICConfig) certificate() string { return filepath.Join(c.Work, "certificate.pem") }
func (c QUICConfig) key() string         { return filepath.Join(c.Work, "key.pem") }

// quicCommand returns the program of a library's server and its arguments.
func quicCommand(ctx context.Context, library string, c QUICConfig) ([]string, error) {
	switch library {
	case "quic-go":
		program, err := quicGo(ctx)
		return []string{program, "serve", "--listen", c.Addr.String(), "--certificate", c.certificate(), "--key", c.key(), "--root", c.Root}, err
	case "aioquic":
		dir, err := Aioquic(ctx, c.Say)
		return []string{filepath.Join(dir, "bin", "python"), filepath.Join(dir, "server.py"),
			c.Addr.Addr().String(), strconv.Itoa(int(c.Addr.Port())), c.certificate(), c.key()}, err
	case "quiche":
		program, err := quiche(ctx, c.Say)
		return []string{program, c.Addr.String(), c.certificate(), c.key()}, err
	case "ngtcp2":
		if err := CheckQUICServer(library); err != nil {
			return nil, err
		}
		return []string{gtlsserver, "--quiet", "--max-dyn-length=1G", c.Addr.Addr().String(), strconv.Itoa(int(c.Addr.Port())), c.key(), c.certificate()}, nil
	}
	return nil, fmt.Errorf("no QUIC server is made of %q", library)
}

// QUICTest is one measurement with the quic-go client.
type QUICTest struct {
	To        netip.AddrPort // the server or a relay to it; zero for the server's own address
	Up        bool           // the client sends
	For, Omit time.Duration  // counted time, and the time before it that is not counted
	// Pause makes the client fetch objects of Size bytes one after another, with this uncounted pause between them.
	Pause   time.Duration
	Size    int
	Version int // of QUIC; 0 means 1
}

// QUICResult is what the receiver got: application data without any headers.
type QUICResult struct {
	Bytes         int64   `json:"bytes"`
	Seconds       float64 `json:"seconds"`
	BitsPerSecond float64 `json:"bits_per_second"`
	Version       string  `json:"version"`
}

// Fetch runs one test from a host, on a new connection, and waits for it.
func (q *QUIC) Fetch(ctx context.Context, host *lab.Host, t QUICTest) (QUICResult, error) {
	if !t.To.IsValid() {
		t.To = q.config.Addr
	}
	args := []string{"fetch", "--to", t.To.String(), "--name", q.config.Names[0], "--certificate", q.Certificate,
		"--for", t.For.String(), "--omit", t.Omit.String(), "--version", strconv.Itoa(max(t.Version, 1)), "--up=" + strconv.FormatBool(t.Up)}
	if t.Pause > 0 {
		args = append(args, "--pause", t.Pause.String(), "--size", strconv.Itoa(t.Size))
	}
	cmd := host.Command(ctx, q.client, args...)
	cmd.WaitDelay = 2 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return QUICResult{}, fmt.Errorf("quic-go client on %s: %w: %s", host.Name(), err, bytes.TrimSpace(stderr.Bytes()))
	}
	var result QUICResult
	if err := json.Unmarshal(out, &result); err != nil {
		return QUICResult{}, fmt.Errorf("quic-go client on %s: %w", host.Name(), err)
	}
	return result, nil
}
