package pt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"

	goptlib "gitlab.torproject.org/tpo/anti-censorship/pluggable-transports/goptlib"
	limit "golang.org/x/net/netutil"

	"heddle/disguise/handshake"
	"heddle/internal/netutil"
	"heddle/path"
)

// maxLocal limits the connections from this machine, any user of which reaches the port.
const maxLocal = 1024

// client serves the parent's connections by SOCKS5.
func (s *started) client(ctx context.Context) error {
	info, err := goptlib.ClientSetup(nil)
	if err != nil && !strings.Contains(err.Error(), "-ERROR ") { // then it is about the proxy, and may hold its password
		return s.proxyError(errors.New("TOR_PT_PROXY is no URL of a proxy"))
	}
	if err != nil {
		return err
	}
	goptlib.ReportVersion("heddle", s.Version)
	var out path.Path
	if info.ProxyURL != nil {
		if out, err = proxyPath(info.ProxyURL); err != nil {
			return s.proxyError(err)
		}
		goptlib.ProxyDone()
	}
	var listeners []net.Listener
	var failed error
	for _, name := range info.MethodNames {
		if name != handshake.Transport || len(listeners) > 0 {
			_ = goptlib.CmethodError(name, "no such transport")
			continue
		}
		l, err := s.listen("tcp", "127.0.0.1:0")
		if err != nil {
			failed = goptlib.CmethodError(name, ascii(err.Error()))
			continue
		}
		goptlib.Cmethod(name, "socks5", l.Addr())
		listeners = append(listeners, limit.LimitListener(l, maxLocal))
	}
	goptlib.CmethodsDone()
	if len(listeners) == 0 {
		return none(failed)
	}
	var work sync.WaitGroup
	defer work.Wait()
	return netutil.Serve(ctx, listeners[0], func(c net.Conn) { work.Go(func() { s.link(ctx, c, out) }) })
}

func (s *started) proxyError(err error) error {
	return goptlib.ProxyError(ascii(err.Error()))
}

// once is a listener with one connection. goptlib reads a request while it accepts, so that one that does not come would hold up all.
type once struct {
	net.Listener
	c net.Conn
}

func (o *once) Accept() (net.Conn, error) {
	c := o.c
	o.c = nil
	if c == nil {
		return nil, net.ErrClosed
	}
	return c, nil
}

// link carries one connection of the parent to the bridge that it asks for.
func (s *started) link(ctx context.Context, c net.Conn, out path.Path) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	request, err := goptlib.NewSocksListener(&once{c: c}).AcceptSocks()
	if err != nil {
		return // it is closed
	}
	to, err := lineOf(request.Req)
	if err != nil {
		_ = request.RejectReason(goptlib.SocksRepConnectionNotAllowed)
		slog.Error("a bridge cannot be used", "error", err)
		return
	}
	far, err := s.Dial(ctx, to, out)
	if ctx.Err() != nil {
		if err == nil {
			far.Close()
		}
		return
	}
	s.log.status(to.Address, err)
	if err != nil {
		_ = request.RejectReason(replyFor(err))
		slog.Warn("a bridge cannot be reached", "error", err)
		return
	}
	defer far.Close()
	if request.Grant(nil) != nil {
		return
	}
	// Not by request, which hides that c has CloseWrite.
	_, _, _ = netutil.Pipe(ctx, netutil.Side{Reader: c, Writer: c}, netutil.Side{Reader: far, Writer: far}, func(error) {
		c.Close()
		far.Close()
	})
	if link, ok := far.(leaver); ok && ctx.Err() != nil {
		link.Leave()
	}
}

// leaver is a link that tells the bridge that it ends.
type leaver interface{ Leave() }

// lineOf returns the bridge line that the parent made a request of.
func lineOf(r goptlib.SocksRequest) (l handshake.Line, err error) {
	if l.Address, err = netip.ParseAddrPort(r.Target); err != nil {
		return l, &path.Error{What: "bridge line", Why: fmt.Sprintf("%.80q is no address and port", ascii(r.Target)), Hint: "write an address, and not a name"}
	}
	l.Args, err = handshake.ParseArgs(r.Args)
	return l, err
}

// replyFor maps an error to a reply of SOCKS5.
func replyFor(err error) byte {
	timeout, isTimeout := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return goptlib.SocksRepConnectionRefused
	case errors.Is(err, syscall.ENETUNREACH):
		return goptlib.SocksRepNetworkUnreachable
	case errors.Is(err, syscall.EHOSTUNREACH):
		return goptlib.SocksRepHostUnreachable
	case isTimeout && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return goptlib.SocksRepTTLExpired
	}
	return goptlib.SocksRepGeneralFailure
}
