// Package mux carries many streams in the one stream of a disguised link, and the requests that begin them. The client of the
// link is the client of yamux. See docs/disguise-wire.md.
//
// Do not use it for a link to one fixed target: the link itself is that stream.
package mux

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// window is how much one stream may have under way to a client, in bytes: 50 Mbit/s x 450 ms.
	window = 3 << 20
	// bridgeWindow is the same to a bridge. Many clients could make it hold as much for each stream to a target that does not
	// read. It lets 4.6 Mbit/s through at 450 ms.
	bridgeWindow = 256 << 10
	// openAtOnce is how many streams may wait for the other side to take them.
	openAtOnce = 128
	// closeAfter is how long a stream that this side closed waits for the other side. It is reset then.
	closeAfter = 30 * time.Second
	// MaxStreams is how many streams of a link may be open at a time.
	MaxStreams = 256
)

// Session is the streams of one link.
type Session struct{ yamux *yamux.Session }

// Client begins the streams of a link at its client.
func Client(link net.Conn) (*Session, error) {
	return newSession(link, yamux.Client, window, closeAfter)
}

// Server begins the streams of a link at its bridge.
func Server(link net.Conn) (*Session, error) {
	return newSession(link, yamux.Server, bridgeWindow, closeAfter)
}

func newSession(link net.Conn, begin func(io.ReadWriteCloser, *yamux.Config) (*yamux.Session, error), window uint32,
	closeAfter time.Duration) (*Session, error) {
	y, err := begin(&guard{Conn: link}, &yamux.Config{AcceptBacklog: openAtOnce, KeepAliveInterval: time.Hour,
		// A link without a connection waits for one, and ends by itself when none comes. So no write has a limit of its own.
		ConnectionWriteTimeout: 24 * time.Hour, MaxStreamWindowSize: window, StreamCloseTimeout: closeAfter, LogOutput: io.Discard})
	if err != nil {
		return nil, err
	}
	return &Session{y}, nil
}

// Open begins a stream, which [Ask] must be called on.
func (s *Session) Open() (*Stream, error) {
	if s.Count() >= MaxStreams {
		return nil, TooMany
	}
	y, err := s.yamux.OpenStream()
	if err != nil {
		return nil, err
	}
	return newStream(y, true), nil
}

// Accept returns the next stream of the other side, whose request waits to be read. It fails when the link ended, or when the
// other side has far more streams than it may.
func (s *Session) Accept() (*Stream, error) {
	y, err := s.yamux.AcceptStream()
	if err != nil {
		return nil, err
	}
	if s.Count() > 2*MaxStreams {
		s.Close()
		return nil, TooMany
	}
	return newStream(y, false), nil
}

// Count returns how many streams there are, among them those that the other side has not closed yet.
func (s *Session) Count() int { return s.yamux.NumStreams() }

// Done is closed when the session ended.
func (s *Session) Done() <-chan struct{} { return s.yamux.CloseChan() }

// Close ends the session and its link.
func (s *Session) Close() error { return s.yamux.Close() }

// The header of a frame (yamux's spec.md).
const (
	headerSize = 12
	typeData   = 0
	typePing   = 2
)

var errPing = errors.New("the other side of the link pings, which it must not")

// guard refuses pings. yamux answers each of them in a goroutine, of which a hostile peer that reads nothing could have any number.
type guard struct {
	net.Conn
	header [headerSize]byte
	have   int    // bytes of header
	body   uint32 // bytes that follow until the next header
}

func (g *guard) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	for rest := b[:n]; len(rest) > 0; {
		if g.body > 0 {
			skip := min(int(g.body), len(rest))
			g.body, rest = g.body-uint32(skip), rest[skip:]
			continue
		}
		took := copy(g.header[g.have:], rest)
		g.have, rest = g.have+took, rest[took:]
		if g.have < headerSize {
			break
		}
		g.have = 0
		switch g.header[1] {
		case typeData:
			g.body = binary.BigEndian.Uint32(g.header[8:])
		case typePing:
			return 0, errPing
		}
	}
	return n, err
}
