package socks5

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"heddle/internal/dial"
	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/internal/socks5"
	"heddle/path"
)

func init() {
	path.Register(path.Kind{Scheme: "socks5", Argument: "HOST:PORT", Carries: path.Datagrams | path.Streams,
		Tunnel: true, New: newPath})
}

// Time limits for an association, and for a connection, which the proxy must make first.
const (
	askPatience  = 10 * time.Second
	dialPatience = 30 * time.Second
)

// proxyPath is a path through one proxy.
type proxyPath struct {
	spec   path.Spec
	host   string
	port   uint16
	base   path.Path
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	secret func(string) (path.Secret, error)
	outer6 atomic.Bool // the proxy was last reached by IPv6
}

func newPath(s path.Spec, o path.Options) (path.Path, error) {
	host, port, err := netutil.SplitHostPort(s.Arg)
	if err != nil {
		return nil, &path.Error{What: "path " + s.Name, Why: fmt.Sprintf("%q is no proxy's address", s.Arg),
			Hint: "write HOST:PORT, for example " + s.Name + "=socks5:127.0.0.1:1080; an IPv6 address stands in brackets"}
	}
	if err := path.Need(o.Base, path.Streams, "the tunnel "+s.Name); err != nil {
		return nil, err
	}
	p := &proxyPath{spec: s, host: host, port: port, base: o.Base, lookup: o.AddressesOf, secret: o.Secret}
	if a, err := netip.ParseAddr(host); err == nil {
		p.outer6.Store(a.Unmap().Is6())
	}
	return p, nil
}

// Carries excludes datagrams if the path to the proxy cannot carry them.
func (p *proxyPath) Carries() path.Carries {
	return path.Streams | path.CarriesOf(p.base)&path.Datagrams
}

func (p *proxyPath) Describe() path.Info {
	under := p.base.Describe()
	info := path.Info{Name: p.spec.Name, Kind: p.spec.Kind, Arg: p.spec.Arg, Observer: "socks5:" + p.spec.Arg, Exit: "socks5:" + p.spec.Arg, Endpoint: p.spec.Arg,
		Addresses: under.Addresses, Fragments: under.Fragments, Ready: under.Ready, Why: under.Why, Hint: under.Hint,
		Claim: "the proxy " + p.spec.Arg + ", and in clear every network between it and you, sees your address, the server's and the size and time of each packet that takes this path, and the proxy's password if it has one; nothing proves who the proxy is; the server sees the proxy's address"}
	if p.spec.Base != "" {
		info.Observer = under.Observer // SOCKS5 hides nothing from the network under it
	}
	if under.MTU > 0 {
		info.MTU = under.MTU - headerIPv4
		if p.outer6.Load() {
			info.MTU -= 20 // the IPv6 header is 20 bytes longer
		}
	}
	return info
}

// Open requests an association, and opens a flow to its relay.
func (p *proxyPath) Open(ctx context.Context, to netip.AddrPort) (path.Flow, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	control, proxy, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	// The client's address is not sent: behind NAT it is unknown, and RFC 1928 permits zero.
	nobody := socks5.Target{Addr: netip.IPv4Unspecified()}
	if proxy.Addr().Is6() {
		nobody.Addr = netip.IPv6Unspecified()
	}
	var relay netip.AddrPort
	err = p.ask(ctx, control, func() (err error) {
		relay, err = socks5.Request(control, socks5.UDPAssociate, nobody)
		return err
	})
	if err == nil {
		relay, err = p.relayAddress(relay, proxy)
	}
	if err != nil {
		control.Close()
		return nil, p.explain(err, "UDP")
	}
	under, err := path.Open(path.WithSession(ctx, ""), p.base, relay) // not shared, so it is of no session
	if err != nil {
		control.Close()
		return nil, &path.Error{What: p.what(), Why: "no way to the proxy's relay " + relay.String(), Err: err, Hint: errhint.Of(err)}
	}
	return newFlow(p.what(), under, control, relay, to), nil
}

// Dial requests a connection. The proxy looks names up.
func (p *proxyPath) Dial(ctx context.Context, to path.Target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	conn, _, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	err = p.ask(ctx, conn, func() error {
		_, err := socks5.Request(conn, socks5.Connect, to)
		return err
	})
	if err != nil {
		conn.Close()
		return nil, p.explain(err, "TCP to "+to.String())
	}
	return conn, nil
}

// relayAddress completes and checks the relay's address from the proxy.
func (p *proxyPath) relayAddress(relay, proxy netip.AddrPort) (netip.AddrPort, error) {
	if relay.Addr().IsUnspecified() {
		relay = netip.AddrPortFrom(proxy.Addr(), relay.Port())
	}
	// A proxy must not direct this machine's packets to itself or to a multicast group.
	stray := relay.Addr().IsMulticast() || relay.Addr().IsLoopback() && !proxy.Addr().IsLoopback()
	if relay.Port() == 0 || stray {
		return relay, fmt.Errorf("it names %v as its relay, which cannot be", relay)
	}
	return relay, nil
}

// connect connects to the first address of the proxy that answers, and authenticates.
func (p *proxyPath) connect(ctx context.Context) (net.Conn, netip.AddrPort, error) {
	addrs, err := p.lookup(ctx, p.host)
	if err != nil {
		return nil, netip.AddrPort{}, &path.Error{What: p.what(), Why: "the proxy's name cannot be looked up", Err: err,
			Hint: cmp.Or(errhint.Of(err), "give the proxy's address instead of "+p.host)}
	}
	who, err := p.credentials()
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	var proxy netip.AddrPort
	conn, err := dial.First(ctx, addrs, func(ctx context.Context, a netip.Addr) (net.Conn, error) {
		proxy = netip.AddrPortFrom(a, p.port)
		return path.Dial(ctx, p.base, path.At(proxy))
	})
	if err != nil {
		return nil, netip.AddrPort{}, &path.Error{What: p.what(), Why: "the proxy cannot be reached", Err: err,
			Hint: cmp.Or(errhint.Of(err), "is it running, and does the path to it work?")}
	}
	path.KeepAlive(conn)
	p.outer6.Store(proxy.Addr().Is6())
	if err := p.ask(ctx, conn, func() error { return socks5.Greet(conn, who) }); err != nil {
		conn.Close()
		return nil, netip.AddrPort{}, p.explain(err, "")
	}
	return conn, proxy, nil
}

// credentials reads the secret of the path; nil without one.
func (p *proxyPath) credentials() (*socks5.Credentials, error) {
	if p.secret == nil {
		return nil, nil
	}
	secret, err := p.secret(p.spec.Name)
	if err != nil || secret == "" {
		return nil, err
	}
	user, password, found := strings.Cut(string(secret), ":")
	if !found || user == "" || password == "" || len(user) > socks5.LongestField || len(password) > socks5.LongestField {
		return nil, &path.Error{What: p.what(), Why: "its secret is no user and password of 1 to 255 bytes each",
			Hint: "write USER:PASSWORD into the file"}
	}
	return &socks5.Credentials{User: user, Password: password}, nil
}

// ask limits one exchange with the proxy by ctx, and then removes the deadline.
func (p *proxyPath) ask(ctx context.Context, conn net.Conn, exchange func() error) error {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	err := exchange()
	stop()
	return cmp.Or(ctx.Err(), err)
}

func (p *proxyPath) what() string { return "path " + p.spec.Name }

// explain returns the error for people of a failed exchange; wanted says what was requested.
func (p *proxyPath) explain(err error, wanted string) error {
	e := &path.Error{What: p.what(), Why: fmt.Sprintf("the proxy %s: %v", p.spec.Arg, err)}
	var refused socks5.Reply
	switch {
	case errors.Is(err, socks5.ErrPassword):
		e.Hint = "correct USER:PASSWORD in the file that --secret " + p.spec.Name + "=FILE names"
	case errors.Is(err, socks5.ErrWantsUser):
		e.Hint = "write USER:PASSWORD into a file that only you can read, and name it with --secret " + p.spec.Name + "=FILE"
	case errors.Is(err, socks5.ErrVersion), errors.Is(err, socks5.ErrMethod):
		e.Hint = "is this the port of a SOCKS5 proxy?"
	case errors.As(err, &refused):
		e.Why = fmt.Sprintf("the proxy %s refuses %s: %v", p.spec.Arg, wanted, refused)
		if wanted == "UDP" && (refused == socks5.CommandUnknown || refused == socks5.NotAllowed) {
			e.Hint = "use a proxy that knows UDP ASSOCIATE and permits it; ssh -D and Tor do not"
		}
	case errors.Is(err, context.DeadlineExceeded):
		e.Why = "the proxy " + p.spec.Arg + " does not answer in time"
		e.Hint = "is this the port of a SOCKS5 proxy?"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		e.Why = "the proxy " + p.spec.Arg + " closes the connection instead of an answer"
		e.Hint = "does it serve this machine? its log may say more"
	}
	return e
}
