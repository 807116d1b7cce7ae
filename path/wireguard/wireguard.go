package wireguard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"heddle/internal/dial"
	"heddle/path"
	"heddle/path/wgconf"
)

func init() {
	path.Register(path.Kind{Scheme: "wireguard", Argument: "FILE", Carries: path.Datagrams | path.Streams,
		Tunnel: true, New: newPath})
}

const (
	defaultMTU = 1420 // as in wg-quick, for a link of 1500 bytes
	leastMTU4  = 576
	leastMTU6  = 1280 // RFC 8200, section 5

	// Bytes that WireGuard adds to a packet: its own header and tag (32), UDP's, and IP's.
	overhead4 = 32 + 8 + 20
	overhead6 = 32 + 8 + 40

	openPatience = 15 * time.Second // for a tunnel to start, if the caller sets no limit
	lingerFor    = 30 * time.Second // from the end of the last flow to the end of the tunnel
)

// tunnelPath is one WireGuard file, and the path that its tunnel rides.
type tunnelPath struct {
	spec     path.Spec
	config   *wgconf.Config
	base     path.Path
	endpoint finder
	linger   time.Duration

	mu     sync.Mutex
	tunnel *tunnel // nil if none runs
	users  int
	rest   *time.Timer // ends the tunnel once it has no users
}

func newPath(s path.Spec, o path.Options) (path.Path, error) {
	if err := path.Need(o.Base, path.Datagrams, "the tunnel "+s.Name); err != nil {
		return nil, err
	}
	file, err := wgconf.Find(s.Arg)
	if err != nil {
		return nil, err
	}
	config, err := wgconf.Load(file)
	if err != nil {
		return nil, err
	}
	return &tunnelPath{spec: s, config: config, base: o.Base, endpoint: o.AddressesOf, linger: lingerFor}, nil
}

func (p *tunnelPath) what() string { return "path " + p.spec.Name }

func (p *tunnelPath) Describe() path.Info {
	under := p.base.Describe()
	key := p.config.Peer.PublicKey.Bytes()
	sum := sha256.Sum256(key[:])
	info := path.Info{Name: p.spec.Name, Kind: p.spec.Kind, Arg: p.spec.Arg,
		Observer: "wireguard:" + p.config.Peer.Endpoint, Exit: "wireguard:" + hex.EncodeToString(sum[:6]),
		Endpoint: p.config.Peer.Endpoint, MTU: p.mtu(under.MTU), Fragments: true, Ready: under.Ready, Why: under.Why, Hint: under.Hint,
		Claim: "the network under it sees a WireGuard tunnel to " + p.config.Peer.Endpoint + " and the size and time of each packet that takes this path, but not the server; who runs the tunnel and the networks behind it see what a bare path from there would show them, the server's address among it, and no packet of the other paths"}
	for _, a := range p.config.Interface.Addresses {
		info.Addresses = append(info.Addresses, a.Addr())
	}
	if err := p.fits(info.MTU, netip.Addr{}); info.Ready && err != nil {
		info.Ready, info.Why, info.Hint = false, err.Why, err.Hint
	}
	return info
}

// mtu returns the size of the largest packet inside the tunnel: the file's MTU, or less if the path under it carries less.
func (p *tunnelPath) mtu(under int) int {
	mtu := p.config.Interface.MTU
	if mtu == 0 {
		mtu = defaultMTU
	}
	if under == 0 {
		return mtu
	}
	overhead := overhead6
	if a, err := netip.ParseAddrPort(p.config.Peer.Endpoint); err == nil && a.Addr().Unmap().Is4() {
		overhead = overhead4
	}
	return max(min(mtu, under-overhead), 0)
}

// fits fails if mtu is below the minimum of IP, of the family of to if that is known.
func (p *tunnelPath) fits(mtu int, to netip.Addr) *path.Error {
	least := leastMTU4
	if to.Is6() {
		least = leastMTU6
	}
	if mtu >= least {
		return nil
	}
	return &path.Error{What: p.what(), Why: fmt.Sprintf("packets of %d bytes are all that fits into the tunnel, and IP needs %d", mtu, least),
		Hint: "raise the MTU in the file, or of what the tunnel rides"}
}

// own returns the tunnel's address that can reach to.
func (p *tunnelPath) own(to netip.Addr) (netip.Addr, error) {
	if !slices.ContainsFunc(p.config.Peer.AllowedIPs, func(a netip.Prefix) bool { return a.Contains(to) }) {
		return netip.Addr{}, &path.Error{What: p.what(), Why: fmt.Sprintf("%v is not among the AllowedIPs of %s, so the tunnel does not lead there", to, p.spec.Arg),
			Hint: "add it to AllowedIPs in the file, if the WireGuard server permits it, or use another path"}
	}
	for _, a := range p.config.Interface.Addresses {
		if a.Addr().Is4() == to.Is4() {
			return a.Addr(), nil
		}
	}
	return netip.Addr{}, &path.Error{What: p.what(), Why: fmt.Sprintf("the tunnel has no address of %v's family", to),
		Hint: "add one to Address in the file, if the WireGuard server gives one"}
}

// Open waits until the tunnel works, and opens a socket inside it.
func (p *tunnelPath) Open(ctx context.Context, to netip.AddrPort) (path.Flow, error) {
	return within(ctx, p, to.Addr(), func(t *tunnel, own netip.Addr, leave func()) (path.Flow, error) {
		return newFlow(t, own, to, leave)
	})
}

// Dial waits until the tunnel works, and connects with TCP inside it. Names are looked up inside, at the file's DNS servers.
func (p *tunnelPath) Dial(ctx context.Context, to path.Target) (net.Conn, error) {
	return dial.Dialer[net.Conn]{Single: p.dialAddress, Lookup: p.lookup}.Dial(ctx, to.Host(), to.Port)
}

func (p *tunnelPath) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	servers := p.config.Interface.DNS
	if len(servers) == 0 {
		return nil, &path.Error{What: p.what(), Why: name + " is not looked up: the file names no DNS server, and none is asked outside the tunnel",
			Hint: "add a DNS line to the file's [Interface], or give an address"}
	}
	var asked atomic.Int64
	inside := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		at := netip.AddrPortFrom(servers[(int(asked.Add(1))-1)%len(servers)], 53) // the next try asks another one
		if strings.HasPrefix(network, "udp") {
			return p.dialUDP(ctx, at)
		}
		return p.dialAddress(ctx, at)
	}}
	addrs, err := inside.LookupNetIP(ctx, "ip", strings.TrimSuffix(name, ".")+".")
	if err != nil {
		return nil, &path.Error{What: p.what(), Why: "the tunnel's DNS server does not give the address of " + name, Err: err,
			Hint: "is the name spelled right, and does " + servers[0].String() + " answer inside the tunnel?"}
	}
	return addrs, nil
}

// dialUDP opens a socket inside the tunnel.
func (p *tunnelPath) dialUDP(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	return within(ctx, p, to.Addr(), func(t *tunnel, own netip.Addr, leave func()) (net.Conn, error) {
		here, there := fullAddress(own, 0), fullAddress(to.Addr(), to.Port())
		c, err := gonet.DialUDP(t.inside.stack, &here, &there, protocolOf(own))
		return &question{UDPConn: c, leave: leave}, err
	})
}

func (p *tunnelPath) dialAddress(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	return within(ctx, p, to.Addr(), func(t *tunnel, own netip.Addr, leave func()) (net.Conn, error) {
		c, err := gonet.DialTCPWithBind(ctx, t.inside.stack, fullAddress(own, 0), fullAddress(to.Addr(), to.Port()), protocolOf(own))
		return &stream{TCPConn: c, leave: leave}, err
	})
}

// within opens something in the path's tunnel, from the tunnel's own address. The result must call leave at its close.
func within[T any](ctx context.Context, p *tunnelPath, to netip.Addr, open func(t *tunnel, own netip.Addr, leave func()) (T, error)) (none T, err error) {
	t, own, err := p.enter(ctx, to)
	if err != nil {
		return none, err
	}
	leave := sync.OnceFunc(p.leave)
	opened, err := open(t, own, leave)
	if err != nil {
		leave()
		return none, err
	}
	return opened, nil
}

// enter joins the path's tunnel once it works. [tunnelPath.leave] ends that.
func (p *tunnelPath) enter(ctx context.Context, to netip.Addr) (*tunnel, netip.Addr, error) {
	own, err := p.own(to)
	if err != nil {
		return nil, own, err
	}
	mtu := p.mtu(p.base.Describe().MTU)
	if err := p.fits(mtu, to); err != nil {
		return nil, own, err
	}
	t, err := p.join(mtu)
	if err != nil {
		return nil, own, err
	}
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	if err := t.wait(ctx); err != nil {
		p.leave()
		return nil, own, err
	}
	return t, own, nil
}

// join starts the tunnel if none runs.
func (p *tunnelPath) join(mtu int) (*tunnel, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tunnel == nil {
		t, err := startTunnel(p.what(), p.config, p.base, p.endpoint, mtu)
		if err != nil {
			return nil, err
		}
		p.tunnel = t
	}
	if p.rest != nil {
		p.rest.Stop()
		p.rest = nil
	}
	p.users++
	return p.tunnel, nil
}

// leave ends the tunnel some time after the last user left.
func (p *tunnelPath) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		p.rest = time.AfterFunc(p.linger, p.end)
	}
}

func (p *tunnelPath) end() {
	p.mu.Lock()
	var t *tunnel
	if p.users == 0 {
		t, p.tunnel = p.tunnel, nil
	}
	p.mu.Unlock()
	if t != nil {
		t.close()
	}
}
