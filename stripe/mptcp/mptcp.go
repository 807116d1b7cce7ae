// Package mptcp carries one stream over several overlay nodes by the Linux kernel's Multipath TCP (RFC 8684): the kernel
// plane of striping.
//
// [Dial] connects to the peer through the first node, which translates addresses, and has the kernel add a subflow
// through each of the others; a program, not the kernel, is the path manager. TLS 1.3 in which both sides prove their
// keys runs inside, from end to end. With [Subflow.From] the way of a subflow can instead be chosen by the address that
// it leaves from, as in the MACHETE paper, where rules at the client do the rest.
//
// It fails open, and Linux has only one scheduler, which fills the fastest subflow first: a short message takes one
// subflow whole, and what a dead subflow held is sent again over the others before a program hears of it. Package stripe
// does neither. Use this one to compare, or where a node that forwards in user space is the bottleneck.
package mptcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"heddle/identity"
	"heddle/internal/errhint"
	"heddle/path"
)

// Protocol is what is spoken inside TLS (ALPN, RFC 7301).
const Protocol = "heddle-stripe-mptcp/1"

// Bounds and defaults of [Options].
const (
	MaxPaths        = 9 // the kernel adds 8 subflows to the first
	DefaultPatience = 30 * time.Second
	maxService      = 255
)

// Subflow is one way to the peer.
type Subflow struct {
	Name string
	// To is where the subflow goes: a port that a node translates to the peer's.
	To netip.AddrPort
	// Through is where rules of this machine lead it on the way there; the zero address is straight to To.
	Through netip.Addr
	// From is the address of this machine that it leaves from; the zero address leaves that to the routes.
	From netip.Addr
	// Device is the device that it leaves by; empty leaves that to the routes.
	Device string
}

// Options say how a connection is made.
type Options struct {
	Subflows []Subflow
	Identity identity.Identity
	Peer     identity.Key
	// Service is what the peer is asked for, up to 255 bytes; empty for its default.
	Service string
	// MinPaths is on how many subflows at least anything is written; 0 is all of them.
	MinPaths int
	// Degrade permits to go on over fewer once all were up.
	Degrade bool
	// Patience is how long subflows may take to come up, and how long a connection waits for one that it lacks before
	// it ends; 0 is [DefaultPatience].
	Patience time.Duration
	// SetPathManager permits to change net.mptcp.pm_type for the moment in which the socket is made.
	SetPathManager bool
	// Log hears of subflows that come and go; nil is silence.
	Log *slog.Logger
	// KeyLog gets the keys of TLS (as SSLKEYLOGFILE), for experiments; nil for none.
	KeyLog io.Writer
}

func (o *Options) complete() error {
	refuse := func(why, hint string) error { return &path.Error{What: "mptcp", Why: why, Hint: hint} }
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	n := len(o.Subflows)
	switch {
	case n == 0 || n > MaxPaths:
		return refuse(fmt.Sprintf("there are %d paths, and a connection has 1 to %d", n, MaxPaths), "")
	case o.MinPaths < 0 || o.MinPaths > n:
		return refuse(fmt.Sprintf("min-paths is %d of %d paths", o.MinPaths, n), "")
	case o.Patience < time.Second:
		return refuse(fmt.Sprintf("patience is %v, less than a second", o.Patience), "")
	case len(o.Service) > maxService:
		return refuse("the service's name has more than 255 bytes", "")
	case o.Peer.IsZero():
		return refuse("no key of the peer is given", "`heddle node key` shows a device's key")
	}
	if o.MinPaths == 0 {
		o.MinPaths = n
	}
	for i, s := range o.Subflows {
		switch {
		case !s.To.IsValid() || s.To.Port() == 0:
			return refuse("path "+s.Name+" leads to no address and port", "")
		case s.To.Addr().Is4() != o.Subflows[0].To.Addr().Is4():
			return refuse("paths lead to IPv4 and to IPv6", "take nodes of one family, as their leases translate none to another")
		case slices.ContainsFunc(o.Subflows[:i], func(other Subflow) bool { return other.To == s.To && other.From == s.From }):
			return refuse("two paths are one: path "+s.Name+" leads to "+s.To.String()+" as another does", "each path needs its own node, or its own source address")
		}
	}
	return nil
}

// Dial connects, and returns once the required subflows are up. Nothing that the caller writes is sent before. It fails with a
// [path.Error] that names each path that is not up once ctx or Patience ends, and with a [Refusal] where the peer does not
// let the connection in.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	if err := errors.Join(o.complete(), supported()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	config, err := o.Identity.Client(o.Peer, Protocol)
	if err != nil {
		return nil, &path.Error{What: "mptcp", Why: err.Error()}
	}
	config.KeyLogWriter = o.KeyLog
	tcp, err := o.connect(ctx)
	if err != nil {
		return nil, err
	}
	c, err := o.begin(ctx, tcp, tls.Client(tcp, config))
	if err != nil {
		abort(tcp)
		return nil, err
	}
	return c, nil
}

// connect opens the first subflow.
func (o *Options) connect(ctx context.Context) (*net.TCPConn, error) {
	first, what := o.Subflows[0], "path "+o.Subflows[0].Name
	giveBack, err := borrow(o.SetPathManager)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{KeepAliveConfig: keepAlive(o.Patience), Control: func(_, _ string, raw syscall.RawConn) error {
		return errors.Join(giveBack(), bindTo(raw, first.Device))
	}}
	d.SetMultipathTCP(true)
	if first.From.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(first.From, 0))
	}
	c, err := d.DialContext(ctx, "tcp", first.To.String())
	if err := giveBack(); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, &path.Error{What: what, Why: "no connection to " + first.To.String(), Err: err, Hint: "does the node translate, and does the peer listen? `heddle node status` tells of the node"}
	}
	tcp := c.(*net.TCPConn)
	if multi, err := tcp.MultipathTCP(); err != nil || !multi {
		abort(tcp)
		return nil, &path.Error{What: what, Why: "the peer or somebody on the way speaks plain TCP only", Err: err,
			Hint: "MPTCP passes a node in nat mode, and none that forwards in user space; the peer must listen with --backend mptcp"}
	}
	return tcp, nil
}

// bindTo ties a socket to a device before it is bound.
func bindTo(raw syscall.RawConn, device string) error {
	if device == "" {
		return nil
	}
	return socket{raw}.do(func(fd int) error { return unix.BindToDevice(fd, device) })
}

// devices looks up what subflows leave by.
func devices(members []*member, all []Subflow) error {
	for i, s := range all {
		if s.Device == "" {
			continue
		}
		device, err := net.InterfaceByName(s.Device)
		if err != nil {
			return &path.Error{What: "path " + s.Name, Why: "there is no device " + s.Device, Err: err}
		}
		members[i].device = device.Index
	}
	return nil
}

// keepAlive has the kernel notice that a subflow on which nothing is to be sent is dead.
func keepAlive(patience time.Duration) net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: max(patience/4, time.Second), Interval: max(patience/8, time.Second), Count: 3}
}

// begin speaks TLS over the first subflow, introduces this side and adds the other subflows.
func (o *Options) begin(ctx context.Context, tcp *net.TCPConn, secure *tls.Conn) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, &path.Error{What: "peer", Why: "does not prove its key at " + tcp.RemoteAddr().String(), Err: err, Hint: errhint.Of(err)}
	}
	c, err := newConn(tcp, secure, o.MinPaths, o.Degrade, o.Patience, o.Log)
	if err != nil {
		return nil, err
	}
	c.peer, c.service = o.Peer, o.Service
	c.members = newMembers(o.Subflows, tcp.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
	if err := devices(c.members, o.Subflows); err != nil {
		return nil, err
	}
	h := hello{paths: len(o.Subflows), min: o.MinPaths, degrade: o.Degrade, service: o.Service}
	if _, err := secure.Write(h.encode()); err != nil {
		return nil, c.broken(err)
	}
	// The kernel lets subflows be added once data went each way, which TLS has seen to.
	waiting, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	welcome := make(chan struct{})
	go func() {
		if err := readAnswer(secure); err != nil {
			refuse(err)
			return
		}
		close(welcome)
	}()
	err = c.await(waiting, o.MinPaths)
	if err == nil {
		select {
		case <-welcome:
		case <-waiting.Done():
			err = context.Cause(waiting)
		}
	}
	if refused := context.Cause(waiting); refused != nil && ctx.Err() == nil {
		return nil, refused
	}
	if err != nil {
		return nil, err
	}
	if !stop() || ctx.Err() != nil {
		return nil, &path.Error{What: "mptcp", Why: "was not up in time", Err: context.Cause(ctx)}
	}
	if err := tcp.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	go c.watch()
	return c, nil
}

// abort ends a connection without sending what the kernel still holds.
func abort(tcp *net.TCPConn) {
	_ = tcp.SetLinger(0)
	_ = tcp.Close()
}

// notUp says which subflows are missing.
func notUp(all []*member, need int, cause error) error {
	var missing []string
	up := 0
	for _, w := range all {
		if w.State == stateUp {
			up++
			continue
		}
		missing = append(missing, fmt.Sprintf("%s (%v): %s", w.Name, w.to, w.Why))
	}
	e := &path.Error{What: "mptcp", Why: fmt.Sprintf("%d of %d paths are up, and %d are required: %s", up, len(all), need, strings.Join(missing, "; ")), Err: cause,
		Hint: "`heddle node status` tells of a node; the peer's kernel takes 2 subflows besides the first unless `ip mptcp limits set subflow N` says more"}
	if errors.Is(cause, unix.EPERM) {
		e.Hint = "run as root or with CAP_NET_ADMIN, or use --backend stripe, which needs neither"
	}
	return e
}
