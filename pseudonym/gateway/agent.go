package gateway

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"heddle/internal/connlimit"
	"heddle/internal/netutil"
	"heddle/internal/tcprepair"
	"heddle/pseudonym/ca"
)

// Agent takes over connections that gateways move to a tenant's machine, and passes them to the sidecar there. It needs CAP_NET_ADMIN, so
// that the sidecar does not.
type Agent struct {
	Identity tls.Certificate // with the tenant's key
	Gateways ca.KeyID        // the key of the gateways
	Sidecar  string          // FILE of its unix socket
	Log      *slog.Logger

	sidecar ways[struct{}]
}

// Times of an agent.
const (
	idleFor  = time.Minute     // without a connection that moves
	moveFor  = 2 * dialFor     // one move
	greetFor = 5 * time.Second // the handshake of a gateway
)

var errGateway = errors.New("it is no connection that a gateway moves")

// Serve serves gateways until ctx ends.
func (a *Agent) Serve(ctx context.Context, l net.Listener) error {
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{a.Identity}, ClientAuth: tls.RequireAnyClientCert, VerifyConnection: only(a.Gateways)}
	places := connlimit.NewPlaces(relays)
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
			for a.take(t) == nil {
			}
		}()
	})
}

// take takes over one connection, or refuses it. It fails if the gateway has ended, or breaks off.
func (a *Agent) take(way net.Conn) error {
	s, err := readMove(way)
	if err != nil {
		return err
	}
	held, sidecar, err := a.prepare(way, s)
	if err != nil {
		a.Log.Warn("a connection cannot be taken over", "error", err)
		_, err := way.Write([]byte{moveRefused})
		return err
	}
	answer := make([]byte, 1)
	if _, err = way.Write([]byte{moveReady}); err == nil {
		_, err = io.ReadFull(way, answer)
	}
	if err != nil || answer[0] != moveBegin {
		return errors.Join(errGateway, err, sidecar.Close(), held.Close()) // it goes on at the gateway
	}
	if err := a.begin(held, sidecar); err != nil {
		a.Log.Warn("a connection is lost that a gateway moved here", "error", err)
	}
	return nil
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

// prepare makes a socket for a connection, and gives it to the sidecar, which works on the client's first message meanwhile.
func (a *Agent) prepare(way net.Conn, s tcprepair.State) (*tcprepair.Held, *net.UnixConn, error) {
	if own := netutil.AddrPort(way.LocalAddr()).Addr(); s.Local.Addr() != own {
		return nil, nil, fmt.Errorf("it is one of %v, and this is %v", s.Local, own)
	}
	// A silent socket gives nobody what it received, so that goes with the message.
	n := min(len(s.Receive), passMost)
	message := passage{client: s.Remote, sent: s.Receive[:n], silent: true}.message()
	s.Receive, s.Received = s.Receive[n:], s.Received+uint32(n)
	held, err := tcprepair.Restore(s, tcprepair.Options{})
	if err != nil {
		return nil, nil, err
	}
	for {
		sidecar, used, err := a.reach()
		if err == nil {
			_ = sidecar.SetDeadline(time.Now().Add(moveFor))
			if err = giveDescriptor(sidecar, held.Descriptor(), message); err == nil {
				return held, sidecar, nil
			}
			sidecar.Close()
		}
		if !used || !gone(err) { // the sidecar may have ended since the last time
			return nil, nil, errors.Join(err, held.Close())
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

// begin lets a connection speak. If the sidecar does not take it, the client gets a reset.
func (a *Agent) begin(held *tcprepair.Held, sidecar *net.UnixConn) error {
	fd, err := held.ResumeDescriptor()
	if err != nil {
		return errors.Join(err, sidecar.Close())
	}
	if _, err = sidecar.Write([]byte{passBegin}); err != nil {
		tcprepair.ResetDescriptor(fd)
		return errors.Join(taken(sidecar, err), sidecar.Close())
	}
	a.sidecar.keep(struct{}{}, sidecar)
	return tcprepair.CloseDescriptor(fd) // the sidecar has it
}
