package relay

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"heddle/internal/connlimit"
	"heddle/internal/netutil"
	"heddle/internal/socks5"
	"heddle/proxy/users"
)

// Front is the side that programs connect to.
type Front struct {
	Pool  *Pool        // one session for each connection
	Users *users.Users // SOCKS5 users by password; nil admits everybody
	Log   *slog.Logger // failed connections; nil is [slog.Default]

	lines connlimit.Lines // about failed connections
}

const (
	maxClients = 1024             // programs' connections that are carried
	greeting   = 10 * time.Second // until a SOCKS5 client has sent its request
)

// opening is the start of a program's connection.
type opening struct {
	say   []byte              // sent to the other side at once
	after func(Session) error // reads the other side's first answer; may be nil
	in    io.Reader           // the program's bytes from there on
}

// Serve carries each connection to the program that the other side serves, until ctx ends. It asks for nothing, so whoever
// connects is a user, and a full port refuses new connections: old ones may be in use.
func (f *Front) Serve(ctx context.Context, l net.Listener) error {
	return f.serve(ctx, l, func(p program, _ *connlimit.Place) (*opening, error) { return &opening{say: []byte{plain}, in: p}, nil })
}

// ServeSOCKS is a SOCKS5 proxy until ctx ends. The other side resolves names and connects to the targets.
func (f *Front) ServeSOCKS(ctx context.Context, l net.Listener) error {
	return f.serve(ctx, l, f.greet)
}

func (f *Front) serve(ctx context.Context, l net.Listener, begin func(program, *connlimit.Place) (*opening, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	room := make(chan struct{}, maxClients)
	waiting := connlimit.NewLocalPlaces() // programs that have not made their request: idle ones keep nobody out
	return netutil.Serve(ctx, l, func(c net.Conn) {
		place := waiting.Enter(c)
		clients.Go(func() {
			f.client(ctx, c.(program), room, func(p program) (*opening, error) {
				defer place.Leave()
				return begin(p, place)
			})
		})
	})
}

func (f *Front) client(ctx context.Context, p program, room chan struct{}, begin func(program) (*opening, error)) {
	stop := context.AfterFunc(ctx, func() { netutil.Reset(p) })
	defer stop()
	o, err := begin(p)
	if o != nil && err == nil {
		err = f.carry(ctx, p, room, o)
	}
	if err == nil {
		p.Close()
		return
	}
	netutil.Reset(p)
	if ctx.Err() == nil && f.lines.Take(time.Now()) {
		f.log().Warn("a connection failed", "error", err)
	}
}

func (f *Front) carry(ctx context.Context, p program, room chan struct{}, o *opening) error {
	select {
	case room <- struct{}{}:
		defer func() { <-room }()
	default:
		return fmt.Errorf("%d connections are carried, and no more are taken", maxClients)
	}
	s, err := f.Pool.Get(ctx)
	if err != nil {
		return err
	}
	defer f.Pool.Done(s)
	if _, err = s.Write(o.say); err == nil && o.after != nil {
		err = o.after(s)
	}
	if err != nil {
		s.Abort(reason(err))
		return err
	}
	return join(ctx, s, p, o.in)
}

func (f *Front) log() *slog.Logger { return cmp.Or(f.Log, slog.Default()) }

// greet does the SOCKS5 greeting locally, so that the greeting to the other side and the request cross the paths in one
// flight. It returns nil if it has already answered the client.
func (f *Front) greet(p program, place *connlimit.Place) (*opening, error) {
	_ = p.SetReadDeadline(time.Now().Add(greeting))
	in := bufio.NewReaderSize(place, 4096)
	if first, err := in.Peek(1); err != nil || first[0] != socks5.Version {
		return nil, notSOCKS(first, err)
	}
	if ok, err := socks5.Negotiate(in, p, socks5.Auth{Password: f.Users.Password(sourceOf(p))}); err != nil || !ok {
		return nil, err
	}
	if f.Users != nil {
		place.Proved()
	}
	request, err := readRequest(in, p)
	if err != nil || request == nil {
		return nil, err
	}
	_ = p.SetReadDeadline(time.Time{})
	return &opening{say: append([]byte{socks5.Version, 1, 0}, request...), after: greeted, in: in}, nil
}

// sourceOf returns the address of a program, invalid for a unix socket.
func sourceOf(p program) netip.Addr {
	at, _ := netip.ParseAddrPort(p.RemoteAddr().String())
	return at.Addr().Unmap()
}

func greeted(s Session) error {
	var chosen [2]byte
	if _, err := io.ReadFull(s, chosen[:]); err != nil {
		return err
	}
	if chosen != [2]byte{socks5.Version, 0} {
		return errors.New("the other side does not speak SOCKS5")
	}
	return nil
}

func notSOCKS(first []byte, err error) error {
	if err != nil || len(first) == 0 {
		return nil // a port probe
	}
	if strings.ContainsRune("CGHPOD", rune(first[0])) {
		return errors.New("a program speaks HTTP to the SOCKS5 proxy: set it to SOCKS5 (socks5h)")
	}
	return socks5.ErrVersion
}

// readRequest returns the bytes of a CONNECT request. It answers all other requests itself and returns nil.
func readRequest(in io.Reader, client io.Writer) (request []byte, err error) {
	var said bytes.Buffer
	command, _, err := socks5.ReadRequest(io.TeeReader(in, &said))
	answer := socks5.CommandUnknown
	switch {
	case errors.Is(err, socks5.ErrAddressType):
		answer = socks5.AddressUnknown
	case err != nil:
		return nil, err
	case command == socks5.Connect:
		return said.Bytes(), nil
	}
	return nil, socks5.WriteReply(client, answer, netip.AddrPort{})
}
