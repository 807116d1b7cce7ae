// Package mptcp is a stripe backend: it carries a stream over several overlay nodes by Linux's Multipath TCP (RFC 8684).
//
// [Dial] connects to the peer through the first node, which translates addresses, and makes the kernel add a subflow through
// each other node. This package is the path manager, not the kernel. End-to-end TLS 1.3 with both keys proved runs inside.
// As in the MACHETE paper, [Subflow.From] can instead select the path by source address, with routing rules on the client.
//
// It fails open: the kernel retransmits data of a dead subflow over the others before this process learns of it. Linux's
// only scheduler fills the fastest subflow first, so one subflow carries all of a short message. Package stripe has neither
// property. Use this package for comparison, or if forwarding in user space is the bottleneck.
package mptcp

import (
	"cmp"
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
	"heddle/internal/netutil"
	"heddle/path"
	"heddle/stripe"
)

// Protocol is the ALPN name (RFC 7301) of the protocol inside TLS.
const Protocol = "heddle-stripe-mptcp/1"

// Bounds and defaults of [Options].
const (
	MaxPaths        = 9 // the kernel adds 8 subflows to the first
	DefaultPatience = stripe.DefaultPatience
	maxService      = 255
)

// Subflow is one path to the peer.
type Subflow struct {
	Name    string
	To      netip.AddrPort // a port that a node translates to the peer's
	Through netip.Addr     // the node that this machine's rules route through; zero for none
	From    netip.Addr     // the source address; zero leaves it to the routes
	Device  string         // the outgoing interface; empty leaves it to the routes
}

// Options configure a connection.
type Options struct {
	Subflows []Subflow
	Identity identity.Identity
	Peer     identity.Key
	Service  string // up to 255 bytes; empty for the peer's default
	MinPaths int    // nothing is written over fewer subflows; 0 for all of them
	Degrade  bool   // permits fewer subflows once MinPaths were up
	// Patience limits how long Dial waits for subflows, and a connection for a missing one. 0 is [DefaultPatience].
	Patience time.Duration
	// SetPathManager permits changing net.mptcp.pm_type while the socket is made.
	SetPathManager bool
	// RunDir is the directory of the journal of that change, for [Clean] after a crash. SetPathManager needs it.
	RunDir string
	Log    *slog.Logger // state changes of subflows; nil for none
	KeyLog io.Writer    // TLS keys in SSLKEYLOGFILE format, for experiments; may be nil
}

func (o *Options) complete() error {
	refuse := func(why, hint string) error { return &path.Error{What: "mptcp", Why: why, Hint: hint} }
	n := len(o.Subflows)
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	switch {
	case n == 0 || n > MaxPaths:
		return refuse(fmt.Sprintf("there are %d paths, and a connection has 1 to %d", n, MaxPaths), "")
	case o.MinPaths < 0 || o.MinPaths > n:
		return refuse(fmt.Sprintf("min-paths is %d of %d paths", o.MinPaths, n), "")
	case o.Patience < time.Second:
		return refuse(fmt.Sprintf("patience is %v, less than a second", o.Patience), "")
	case len(o.Service) > maxService:
		return refuse("the service's name has more than 255 bytes", "")
	case o.SetPathManager && o.RunDir == "":
		return refuse("there is no directory for the journal of net.mptcp.pm_type", "")
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

// Dial returns once the required subflows are up. If ctx or Patience ends first, it fails with a [path.Error] that names
// each missing path. It fails with a [Refusal] if the peer refuses the connection.
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
		netutil.Reset(tcp)
		return nil, err
	}
	return c, nil
}

func (o *Options) connect(ctx context.Context) (*net.TCPConn, error) {
	first, what := o.Subflows[0], "path "+o.Subflows[0].Name
	for _, s := range o.Subflows {
		path.GuardAnswers(s.To.Addr())
	}
	giveBack, err := o.borrow(ctx) // for the shortest time: others wait
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
		netutil.Reset(tcp)
		return nil, &path.Error{What: what, Why: "the peer or somebody on the way speaks plain TCP only", Err: err,
			Hint: "MPTCP passes a node in nat mode, and none that forwards in user space; the peer must listen with --backend mptcp"}
	}
	return tcp, nil
}

func bindTo(raw syscall.RawConn, device string) error {
	if device == "" {
		return nil
	}
	return socket{raw}.do(func(fd int) error { return unix.BindToDevice(fd, device) })
}

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

// keepAlive makes the kernel detect a dead subflow while nothing is sent on it.
func keepAlive(patience time.Duration) net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: max(patience/4, time.Second), Interval: max(patience/8, time.Second), Count: 3}
}

// begin does the TLS handshake over the first subflow, sends the hello and adds the other subflows.
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
	// The kernel accepts further subflows once data went in each direction, which the TLS handshake ensured.
	waiting, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if err := readAnswer(secure); err != nil {
			refuse(err)
		}
	}()
	if err = c.await(waiting, o.MinPaths); err == nil {
		<-answered // the end of ctx interrupts it
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

// notUp returns an error that names the missing subflows.
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
		e.Hint = errhint.Rights("CAP_NET_ADMIN") + ", or use --backend stripe, which needs neither"
	}
	return e
}
