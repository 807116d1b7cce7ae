package relay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"heddle/internal/dial"
	"heddle/internal/netutil"
	"heddle/internal/socks5"
)

// Back is the side that connects to programs.
type Back struct {
	To      string                    // the one program served, HOST:PORT or unix:FILE; empty for none
	Allowed func(netip.AddrPort) bool // addresses that SOCKS5 clients may reach; nil serves no SOCKS5
	Log     *slog.Logger              // targets that cannot be reached; nil is [slog.Default]
}

// dialPatience covers all addresses of a name together.
const dialPatience = 30 * time.Second

// Serve carries one session until it ends. It waits until ctx ends for the first byte, since sessions are dialled ahead.
func (b *Back) Serve(ctx context.Context, s Session) error {
	stop := context.AfterFunc(ctx, func() { s.Abort("the server ends") })
	defer stop()
	var first [1]byte
	if _, err := io.ReadFull(s, first[:]); errors.Is(err, io.EOF) {
		return s.Close() // a session dialled ahead that was never used
	} else if err != nil {
		return err
	}
	switch {
	case first[0] == plain && b.To != "":
		return b.plain(ctx, s)
	case first[0] == socks5.Version && b.Allowed != nil:
		return b.socks(ctx, s)
	case first[0] == plain:
		s.Abort("this service is a SOCKS5 proxy: dial it with --socks")
	case first[0] == socks5.Version:
		s.Abort("this service is no SOCKS5 proxy: dial it with --listen")
	default:
		s.Abort("this service carries TCP programs: it does not know what else was sent")
	}
	return nil
}

func (b *Back) plain(ctx context.Context, s Session) error {
	attempt, cancel := context.WithTimeout(ctx, dialPatience)
	p, err := dialProgram(attempt, b.To)
	cancel()
	if err != nil {
		b.log().Warn("the program that is served cannot be reached", "to", b.To, "error", err)
		s.Abort("the program that is served cannot be reached: " + short(err))
		return err
	}
	return join(ctx, s, p, p)
}

func (b *Back) log() *slog.Logger { return cmp.Or(b.Log, slog.Default()) }

// dialProgram connects to HOST:PORT or unix:FILE. MPTCP stays off, since it would add paths of its own.
func dialProgram(ctx context.Context, to string) (program, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	network, at := netutil.Network(to)
	c, err := d.DialContext(ctx, network, at)
	if err != nil {
		return nil, err
	}
	return c.(program), nil // *net.TCPConn or *net.UnixConn
}

// socks serves one request of a SOCKS5 client, whose first byte is already read.
func (b *Back) socks(ctx context.Context, s Session) error {
	in := io.MultiReader(bytes.NewReader([]byte{socks5.Version}), s)
	if plain, err := socks5.Negotiate(in, s, socks5.Auth{}); err != nil {
		return err
	} else if !plain {
		return s.Close()
	}
	command, to, err := socks5.ReadRequest(s)
	answer := func(r socks5.Reply) error {
		return errors.Join(socks5.WriteReply(s, r, netip.AddrPort{}), s.Close())
	}
	switch {
	case errors.Is(err, socks5.ErrAddressType):
		return answer(socks5.AddressUnknown)
	case err != nil:
		return err
	case command != socks5.Connect:
		return answer(socks5.CommandUnknown)
	}
	p, err := b.exit(ctx, to)
	if err != nil {
		b.log().Debug("a SOCKS5 client is not connected", "error", err)
		return answer(replyFor(err))
	}
	if err := socks5.WriteReply(s, socks5.Succeeded, netip.AddrPort{}); err != nil {
		netutil.Reset(p)
		return err
	}
	return join(ctx, s, p, p)
}

// exit connects to an allowed target. This machine resolves its name.
func (b *Back) exit(ctx context.Context, to socks5.Target) (program, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	d := dial.Dialer[program]{Allowed: b.Allowed, Most: 6,
		Single: func(ctx context.Context, at netip.AddrPort) (program, error) { return dialProgram(ctx, at.String()) }}
	return d.Dial(ctx, to.Host(), to.Port)
}

func replyFor(err error) socks5.Reply {
	var lookup *net.DNSError
	switch {
	case errors.Is(err, dial.ErrNone):
		return socks5.NotAllowed
	case errors.As(err, &lookup), errors.Is(err, syscall.EHOSTUNREACH):
		return socks5.HostUnreachable
	case errors.Is(err, syscall.ENETUNREACH):
		return socks5.NetworkUnreachable
	case errors.Is(err, syscall.ECONNREFUSED):
		return socks5.Refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return socks5.TimedOut
	}
	return socks5.Failure
}

// short returns the cause of a failed dial without addresses.
func short(err error) string {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e.Error()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "it does not answer"
	}
	return fmt.Sprintf("%T", err)
}
