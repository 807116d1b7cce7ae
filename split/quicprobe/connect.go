package quicprobe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"

	"heddle/path"
)

// session is one connection to the server, and its socket.
type session struct {
	conn      *quic.Conn
	socket    *rebinder
	transport *quic.Transport
	recorder  *recorder
	endpoints []*endpoint
}

// keepAlive makes an idle client send, so that the server has cause to answer. It is less than any round trip; quic-go
// itself waits for one and a half probe timeouts (RFC 9002, section 6.2.1).
const keepAlive = 10 * time.Millisecond

// attempts is how often the probe connects to a server that took an earlier connection before it says that the server vanished. It may
// just be busy, so the probe waits twice as long each time.
const attempts = 3

// connect opens a connection over the first path, and waits until the server has confirmed the handshake: a client must not
// change its address before (RFC 9000, section 9). It records that the server takes no connection any more, after an earlier one.
func (p *prober) connect(ctx context.Context) (s *session, err error) {
	patience := p.pace.answer
	for range attempts {
		if s, err = p.begin(ctx); err != nil {
			return nil, err
		}
		if err = p.shake(ctx, s, patience); err == nil {
			return s, nil
		}
		if ctx.Err() != nil || p.report.Parameters == nil {
			return nil, err
		}
		patience *= 2
	}
	p.report.Vanished = p.step
	return nil, err
}

// shake connects a session and waits for the confirmation, or closes it.
func (p *prober) shake(ctx context.Context, s *session, patience time.Duration) error {
	if err := p.dial(ctx, s); err != nil {
		return err
	}
	if s.recorder.confirms(ctx, patience) {
		return nil
	}
	defer s.close()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e := &path.Error{What: "QUIC to " + p.to.String(), Why: fmt.Sprintf("the server did not confirm the handshake within %v", patience)}
	if s.ended() != nil {
		e.Why = ending(s.ended())
	}
	return e
}

// begin returns an unconnected session on the first path.
func (p *prober) begin(ctx context.Context) (*session, error) {
	s := &session{socket: newRebinder(p.to, p.meter), recorder: newRecorder()}
	s.transport = &quic.Transport{Conn: s.socket}
	if _, err := s.endpoint(ctx, p, 0); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// dial connects a session, or closes it on failure.
func (p *prober) dial(ctx context.Context, s *session) (err error) {
	first := s.endpoints[0]
	dial, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-s.socket.refused:
			if first.received.Load() == 0 {
				cancel(err)
			}
		case <-dial.Done():
		}
	}()
	config := &quic.Config{Versions: []quic.Version{quic.Version(p.version)}, HandshakeIdleTimeout: p.pace.handshake, KeepAlivePeriod: keepAlive,
		Tracer: s.recorder.trace, InitialPacketSize: minDatagram, DisablePathMTUDiscovery: true}
	trust := &tls.Config{ServerName: p.name, NextProtos: p.ALPN, RootCAs: p.Roots, InsecureSkipVerify: p.Insecure, MinVersion: tls.VersionTLS13}
	s.conn, err = s.transport.Dial(dial, s.socket.remote, trust, config)
	if err == nil {
		return nil
	}
	if cause := context.Cause(dial); cause != nil {
		err = cause
	}
	silent := first.received.Load() == 0
	s.close()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_, told := errors.AsType[*path.Unreachable](err)
	if _, timeout := errors.AsType[net.Error](err); timeout && silent && !told {
		return p.silence(ctx, s.socket.stranger.Hint())
	}
	return p.explain(err)
}

// endpoint opens another address or port of the client.
func (s *session) endpoint(ctx context.Context, p *prober, way int) (*endpoint, error) {
	l, err := s.socket.add(ctx, p.ways[way])
	if err == nil {
		s.endpoints = append(s.endpoints, l)
	}
	return l, err
}

// spread opens endpoints on the first ways of the paths in turn, until there are k.
func (s *session) spread(ctx context.Context, p *prober, k, ways int) error {
	for i := len(s.endpoints); i < k; i++ {
		if _, err := s.endpoint(ctx, p, i%ways); err != nil {
			return err
		}
	}
	return nil
}

// ended returns why the connection ended, nil while it lives.
func (s *session) ended() error { return context.Cause(s.conn.Context()) }

func (s *session) close() {
	if s.conn != nil {
		s.conn.CloseWithError(0, "")
	}
	s.transport.Close()
	s.socket.Close()
}

// silence explains a server that answers nothing: TCP tells whether the host is there. hint says what else came, if anything did.
func (p *prober) silence(ctx context.Context, hint string) error {
	e := &path.Error{What: "QUIC to " + p.to.String(), Why: fmt.Sprintf("no answer within %v", p.pace.handshake), Hint: hint}
	if hint != "" {
		return e
	}
	if path.CarriesOf(p.ways[0])&path.Streams == 0 {
		e.Hint = "is the server up, does it speak QUIC (HTTP/3) on that UDP port, and does the path carry UDP?"
		return e
	}
	ctx, cancel := context.WithTimeout(ctx, p.pace.handshake)
	defer cancel()
	if conn, err := path.Dial(ctx, p.ways[0], path.At(p.to)); err == nil {
		conn.Close()
		e.Why += fmt.Sprintf(", but TCP port %d is open", p.to.Port())
		e.Hint = "the server speaks no QUIC there, or a network on the way drops UDP: try another path"
		return e
	}
	e.Why += ", nor by TCP"
	e.Hint = "is the server up, and does the path reach it? `heddle doctor` looks at this machine's paths"
	return e
}

const (
	alertNoProtocol = 0x178 // CRYPTO_ERROR with no_application_protocol (RFC 9001, section 8.1)
	cryptoErrors    = 0x100
)

// explain describes a failed handshake for people.
func (p *prober) explain(err error) error {
	e := &path.Error{What: "QUIC to " + p.to.String(), Err: err}
	if already, ok := errors.AsType[*path.Error](err); ok {
		return already
	}
	if u, ok := errors.AsType[*path.Unreachable](err); ok {
		e.Hint = "does the server reach you by this path, and is it up?"
		if u.Errno == syscall.ECONNREFUSED {
			e.Why, e.Hint = "no QUIC there", "many servers speak only TCP on that port; is HTTP/3 on, and is it this port?"
		}
		if u.Errno == syscall.EMSGSIZE {
			e.Why, e.Hint = "QUIC needs datagrams of 1200 bytes", "use a path with a larger MTU"
		}
		return e
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		e.Why = "the server's certificate is not to be trusted"
		e.Hint = fmt.Sprintf("it must be for %s, by an authority that this machine knows: see --sni and --ca, or --insecure for a test server of your own", p.name)
		return e
	}
	if v, ok := errors.AsType[*quic.VersionNegotiationError](err); ok {
		e.Why, e.Err = fmt.Sprintf("it has none of the versions of QUIC that this probe speaks, only %v", v.Theirs), nil
		return e
	}
	if t, ok := errors.AsType[*quic.TransportError](err); ok {
		e.Why = "the handshake failed"
		switch {
		case t.ErrorCode == alertNoProtocol:
			e.Why, e.Hint = "the server speaks none of "+strings.Join(p.ALPN, ", "), "name its protocol with --alpn"
		case t.ErrorCode == quic.ConnectionRefused:
			e.Why, e.Hint = "the server takes no connections now", "try again later"
		case t.Remote && t.ErrorCode >= cryptoErrors:
			e.Why, e.Hint = "the server refused the TLS handshake", "is --sni a name that it has? it may also want a certificate of the client"
		}
		return e
	}
	e.Why = "the handshake failed"
	return e
}
