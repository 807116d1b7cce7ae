package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"heddle/lab"
)

// QUICServers are the HTTP/3 servers that [QUICServer] starts, by the name of the library that each is made of. All
// run with their library's defaults, apart from what quiche needs to let a client migrate. All speak QUIC version 1
// (RFC 9000); quic-go and aioquic also version 2 (RFC 9369).
var QUICServers = []string{"quic-go", "aioquic", "quiche"}

// QUICConfig says where a QUIC server is and what it serves.
type QUICConfig struct {
	// Addr is where it listens.
	Addr netip.AddrPort
	// Names are those of its certificate; the first is what [QUIC.Fetch] asks for.
	Names []string
	// Work is an existing directory for its certificate and key.
	Work string
	// Root is a directory of files to serve beside the numbers; quic-go only.
	Root string
	// Say takes a line where something has to be built first, which may take minutes; nil for nobody.
	Say func(format string, args ...any)
}

// QUIC is an HTTP/3 server that answers GET /N with N bytes, and POST with the number of bytes it got.
type QUIC struct {
	*Process
	// Certificate is the file of the certificate that clients must trust, in PEM.
	Certificate string
	config      QUICConfig
	client      string // the program of the quic-go client
}

// QUICServer starts one of [QUICServers] on a host. What is not there yet is built into the user's cache first.
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
	_, err = q.started(q.AwaitLog(ctx, "listening on"))
	return q, err
}

func (c QUICConfig) certificate() string { return filepath.Join(c.Work, "certificate.pem") }
func (c QUICConfig) key() string         { return filepath.Join(c.Work, "key.pem") }

// quicCommand gives the program of a library's server and its arguments.
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
	}
	return nil, fmt.Errorf("no QUIC server is made of %q", library)
}

// QUICTest is one measurement with the quic-go client.
type QUICTest struct {
	// To is the server, or a relay to it; the zero value is the server's own address.
	To netip.AddrPort
	// Up makes the client send.
	Up bool
	// For is how long it counts, and Omit how much of the start does not count, on top.
	For, Omit time.Duration
	// Pause makes the client get one object of Size bytes after another, with so long between them that does not count.
	Pause time.Duration
	Size  int
	// Version of QUIC; 0 means 1.
	Version int
}

// QUICResult is what the receiver got: application data, without headers of any kind.
type QUICResult struct {
	Bytes         int64   `json:"bytes"`
	Seconds       float64 `json:"seconds"`
	BitsPerSecond float64 `json:"bits_per_second"`
	Version       string  `json:"version"`
}

// Fetch runs one test from a host and waits for it. Each makes a connection of its own.
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
