package relay

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"heddle/internal/netutil"
	"heddle/internal/socks5"
	"heddle/proxy/users"
)

// Front is the side that programs connect to.
type Front struct {
	// Pool gives a session for each connection.
	Pool *Pool
	// Users may use the SOCKS5 proxy, by password; nil lets everybody.
	Users *users.Users
	// Log hears of connections that fail; nil is [slog.Default].
	Log *slog.Logger
}

const (
	maxClients = 1024
	// greeting is how long a SOCKS5 client may take to say what it wants.
	greeting = 10 * time.Second
)

// opening is what a program's connection begins with.
type opening struct {
	say   []byte              // to the other side, at once
	after func(Session) error // what the other side says before it is the program's turn; nil for nothing
	in    io.Reader           // what the program says from there on
}

// Serve carries each connection to the program that the other side serves, until ctx ends.
func (f *Front) Serve(ctx context.Context, l net.Listener) error {
	return f.serve(ctx, l, func(p program) (*opening, error) { return &opening{say: []byte{plain}, in: p}, nil })
}

// ServeSOCKS is a SOCKS5 proxy, until ctx ends: the other side connects to what each client asks for, and resolves the
// names.
func (f *Front) ServeSOCKS(ctx context.Context, l net.Listener) error {
	return f.serve(ctx, l, f.greet)
}

func (f *Front) serve(ctx context.Context, l net.Listener, begin func(program) (*opening, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	room := make(chan struct{}, maxClients)
	return netutil.Serve(ctx, l, func(c net.Conn) {
		select {
		case room <- struct{}{}:
		default:
			f.log().Warn("too many connections: a new one is refused", "limit", maxClients)
			netutil.Reset(c)
			return
		}
		clients.Go(func() {
			defer func() { <-room }()
			f.client(ctx, c.(program), begin)
		})
	})
}

// client carries one connection in a session of its own.
func (f *Front) client(ctx context.Context, p program, begin func(program) (*opening, error)) {
	stop := context.AfterFunc(ctx, func() { netutil.Reset(p) })
	defer stop()
	o, err := begin(p)
	if o != nil && err == nil {
		err = f.carry(ctx, p, o)
	}
	if err == nil {
		p.Close()
		return
	}
	netutil.Reset(p)
	if ctx.Err() == nil {
		f.log().Warn("a connection failed", "error", err)
	}
}

func (f *Front) carry(ctx context.Context, p program, o *opening) error {
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

// greet greets a SOCKS5 client here, so that only its request crosses the paths, at once with a greeting to the other
// side. It gives nil where the client is answered already.
func (f *Front) greet(p program) (*opening, error) {
	_ = p.SetReadDeadline(time.Now().Add(greeting))
	in := bufio.NewReaderSize(p, 4096)
	if first, err := in.Peek(1); err != nil || first[0] != socks5.Version {
		return nil, notSOCKS(first, err)
	}
	if ok, err := socks5.Negotiate(in, p, socks5.Auth{Password: f.Users.Password(sourceOf(p))}); err != nil || !ok {
		return nil, err
	}
	request, err := readRequest(in, p)
	if err != nil || request == nil {
		return nil, err
	}
	_ = p.SetReadDeadline(time.Time{})
	return &opening{say: append([]byte{socks5.Version, 1, 0}, request...), after: greeted, in: in}, nil
}

// sourceOf is the address that a program connects from; invalid where it comes by none.
func sourceOf(p program) netip.Addr {
	at, _ := netip.ParseAddrPort(p.RemoteAddr().String())
	return at.Addr().Unmap()
}

// greeted reads the other side's answer to the greeting.
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
		return nil // somebody looked whether the port is open
	}
	if strings.ContainsRune("CGHPOD", rune(first[0])) {
		return errors.New("a program speaks HTTP to the SOCKS5 proxy: set it to SOCKS5 (socks5h)")
	}
	return socks5.ErrVersion
}

// readRequest gives the bytes of a request to connect. What else is asked for is answered here; request is nil then.
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
