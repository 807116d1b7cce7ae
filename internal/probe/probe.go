// Package probe sends what active probers send to servers that they suspect, and measures what such a prober learns: whether
// the server answers, how it ends the connection, when, and after how many bytes.
//
// Do not use it on servers of others.
package probe

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"syscall"
	"time"

	"heddle/internal/draw"
)

// Kind is a kind of probe.
type Kind struct {
	Name  string
	bytes func(flight []byte) []byte
}

// Bytes are what one probe sends. flight is what a user sent first.
func (k Kind) Bytes(flight []byte) []byte { return k.bytes(flight) }

// longest is the most random bytes of a probe.
const longest = 20_000

// Kinds are all kinds.
var Kinds = []Kind{
	{"silence", func([]byte) []byte { return nil }},
	{"random", func([]byte) []byte { // lengths of all magnitudes
		b := make([]byte, int(math.Exp(float64(draw.Below(1<<20))/(1<<20)*math.Log(longest))))
		_, _ = rand.Read(b)
		return b
	}},
	{"replay", func(flight []byte) []byte { return flight }},
	{"cut", func(flight []byte) []byte { return flight[:draw.Below(len(flight))] }},
	{"flipped", func(flight []byte) []byte {
		b := append([]byte(nil), flight...)
		if len(b) > 0 {
			b[draw.Below(len(b))] ^= 1 << draw.Below(8)
		}
		return b
	}},
	{"tls", func([]byte) []byte { return clientHello() }},
	{"http", func([]byte) []byte { return []byte("GET / HTTP/1.1\r\nHost: web.example\r\n\r\n") }},
	{"ssh", func([]byte) []byte { return []byte("SSH-2.0-OpenSSH_9.6\r\n") }},
}

// clientHello is what a TLS client sends first.
func clientHello() []byte {
	near, far := net.Pipe()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: "web.example"}).Handshake()
		near.Close()
	}()
	defer far.Close()
	b := make([]byte, 16<<10)
	n, _ := far.Read(b) // a record is one write
	return b[:n]
}

// How the server ended a connection.
const (
	FIN  = "FIN"
	RST  = "RST"
	Open = "open" // it did not
)

// Result is what a prober learns from one probe.
type Result struct {
	Answer  int           // bytes
	Refused int           // bytes of the probe that the server's machine did not acknowledge
	End     string        // FIN, RST or Open
	After   time.Duration // from the connection to its end
}

// Seen counts the results of a kind of probe, without times.
type Seen struct {
	Probes   int
	Answered int // with any byte
	Refused  int // that lack the acknowledgement of a byte
	FIN, RST int
	Open     int
}

// Count adds a result.
func (s *Seen) Count(r Result) {
	s.Probes++
	if r.Answer > 0 {
		s.Answered++
	}
	if r.Refused > 0 {
		s.Refused++
	}
	switch r.End {
	case FIN:
		s.FIN++
	case RST:
		s.RST++
	default:
		s.Open++
	}
}

// Send sends a probe over a new connection, and waits until the server ends it, or for so long. ends says whether the prober ends
// its direction at once.
func Send(c *net.TCPConn, probe []byte, ends bool, patience time.Duration) Result {
	began := time.Now()
	_ = c.SetDeadline(began.Add(patience))
	_, err := c.Write(probe)
	if err == nil && ends {
		err = c.CloseWrite()
	}
	var answer int64
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		answer, err = io.Copy(io.Discard, struct{ io.Reader }{c})
	}
	r := Result{Answer: int(answer), Refused: max(len(probe)-acknowledged(c), 0), End: Open, After: time.Since(began)}
	switch {
	case err == nil:
		r.End = FIN
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		r.End = RST
	}
	return r
}
