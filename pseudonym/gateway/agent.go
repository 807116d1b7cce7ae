package gateway

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/connlimit"
	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/internal/tcprepair"
	"heddle/path"
	"heddle/pseudonym/ca"
)

// Agent takes over connections that gateways move to a tenant's machine, and passes them to the sidecar there, or relays them to another server. It
// needs CAP_NET_ADMIN, so that these do not.
type Agent struct {
	Identity tls.Certificate // with the tenant's key
	Gateways ca.KeyID        // the key of the gateways
	Sidecar  string          // FILE of its unix socket
	Server   string          // in place of a sidecar: HOST:PORT or unix:FILE of a server that reads the PROXY protocol
	Direct   []netip.Addr    // of gateways, whose clients this machine answers from these addresses itself
	Log      *slog.Logger

	moving  sync.Map // the ends of connections that move here now, as [2]netip.AddrPort
	sidecar ways[struct{}]
	relayed *connlimit.Places // connections to Server
}

// receiver has been told what a client said, and takes the connection when that may speak.
type receiver interface {
	// begin lets the connection speak. If the receiver does not take it, the client gets a reset.
	begin(*tcprepair.Held) error
	// Close forgets the client, who does not notice.
	Close() error
}

// Times of an agent.
const (
	idleFor  = time.Minute     // without a connection that moves
	moveFor  = 2 * dialFor     // one move
	greetFor = 5 * time.Second // the handshake of a gateway
)

var (
	errGateway = errors.New("it is no connection that a gateway moves")
	errTwice   = errors.New("the same connection moves here already")
)

// Serve serves gateways until ctx ends.
func (a *Agent) Serve(ctx context.Context, l net.Listener) error {
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{a.Identity}, ClientAuth: tls.RequireAnyClientCert, VerifyConnection: only(a.Gateways)}
	places := connlimit.NewPlaces(relays)
	if len(a.Direct) > 0 {
		watch, _ := path.NewWatch() // without it the agent asks the kernel for each connection
		defer watch.Close()
	}
	a.relayed = connlimit.NewQuietPlaces(relays) // who has said its first message may be silent
	return netutil.Serve(ctx, l, func(c net.Conn) {
		go func() {
			place := places.Enter(c)
			defer place.Close()
			defer context.AfterFunc(ctx, func() { place.Close() })()
			t := tls.Server(place, config)
			_ = t.SetDeadline(time.Now().Add(greetFor))
			if t.HandshakeContext(ctx) != nil {
				return
			}
			place.Proved()
			for a.take(ctx, t) == nil {
			}
		}()
	})
}

// take takes over one connection, or refuses it. It fails if the gateway has ended, or breaks off.
func (a *Agent) take(ctx context.Context, way net.Conn) error {
	s, err := readMove(way)
	if err != nil {
		return err
	}
	of := [2]netip.AddrPort{s.Local, s.Remote}
	_, twice := a.moving.LoadOrStore(of, true)
	if !twice {
		defer a.moving.Delete(of)
	}
	held, to, err := a.prepare(ctx, way, s, twice)
	if err != nil {
		a.Log.Warn("a connection cannot be taken over", "error", err, "hint", errhint.Of(err))
		_, err := way.Write([]byte{moveRefused})
		return err
	}
	answer := make([]byte, 1)
	if _, err = way.Write([]byte{moveReady}); err == nil {
		_, err = io.ReadFull(way, answer)
	}
	if err != nil || answer[0] != moveBegin {
		return errors.Join(errGateway, err, to.Close(), held.Close()) // it goes on at the gateway
	}
	if err := to.begin(held); err != nil {
		a.Log.Warn("a connection is lost that a gateway moved here", "error", err)
	}
	_, err = way.Write([]byte{moveBegun}) // also if the client got a reset
	return err
}

// readMove reads the state of a connection.
func readMove(way net.Conn) (s tcprepair.State, err error) {
	_ = way.SetDeadline(time.Now().Add(idleFor))
	head := make([]byte, 4)
	if _, err := io.ReadFull(way, head); err != nil {
		return s, err
	}
	_ = way.SetDeadline(time.Now().Add(moveFor))
	size := binary.BigEndian.Uint32(head)
	if size > moveMost {
		return s, errGateway
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(way, b); err != nil {
		return s, err
	}
	return s, s.UnmarshalBinary(b)
}

// prepare makes a socket for a connection, and tells its receiver what the client said, so that this works on the answer meanwhile.
func (a *Agent) prepare(ctx context.Context, way net.Conn, s tcprepair.State, twice bool) (*tcprepair.Held, receiver, error) {
	if twice { // restore must not end a socket with which the connection may go on
		return nil, nil, errTwice
	}
	own := netutil.AddrPort(way.LocalAddr()).Addr()
	direct := s.Local.Addr() != own
	if direct {
		if err := a.answers(s, own, netutil.AddrPort(way.RemoteAddr()).Addr()); err != nil {
			return nil, nil, err
		}
	}
	// A silent socket gives nobody what it received, so that goes with the message.
	said := s.Receive[:min(len(s.Receive), passMost)]
	s.Receive, s.Received = s.Receive[len(said):], s.Received+uint32(len(said))
	held, err := restore(s, direct)
	if err != nil {
		return nil, nil, err
	}
	var to receiver
	if a.Server != "" {
		to, err = a.tellServer(ctx, s, said)
	} else {
		to, err = a.tellSidecar(held, passage{client: s.Remote, sent: said, silent: true})
	}
	if err != nil {
		return nil, nil, errors.Join(err, held.Close())
	}
	return held, to, nil
}

// tellSidecar gives a connection to the sidecar.
func (a *Agent) tellSidecar(held *tcprepair.Held, p passage) (receiver, error) {
	for {
		sidecar, used, err := a.reach()
		if err == nil {
			_ = sidecar.SetDeadline(time.Now().Add(moveFor))
			if err = giveDescriptor(sidecar, held.Descriptor(), p.message()); err == nil {
				return passing{a, sidecar}, nil
			}
			sidecar.Close()
		}
		if !used || !gone(err) { // the sidecar may have ended since the last time
			return nil, err
		}
	}
}

// reach returns a way to the sidecar, and whether it was used before.
func (a *Agent) reach() (way *net.UnixConn, used bool, err error) {
	for {
		way, _ := a.sidecar.take(struct{}{}).(*net.UnixConn)
		if way == nil {
			way, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: a.Sidecar, Net: "unix"})
			return way, false, err
		}
		if !hasEnded(way) {
			return way, true, nil
		}
		way.Close()
	}
}

// passing is a connection that the sidecar has, and which may not speak yet.
type passing struct {
	agent *Agent
	*net.UnixConn
}

func (p passing) begin(held *tcprepair.Held) error {
	fd, err := held.ResumeDescriptor()
	if err != nil {
		return errors.Join(err, p.Close())
	}
	if _, err = p.Write([]byte{passBegin}); err != nil {
		tcprepair.ResetDescriptor(fd)
		return errors.Join(taken(p.UnixConn, err), p.Close())
	}
	p.agent.sidecar.keep(struct{}{}, p.UnixConn)
	return tcprepair.CloseDescriptor(fd) // the sidecar has it
}
