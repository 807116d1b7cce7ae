// Package client implements paths through an overlay node: one's own machine, or one that a grant permits. Package
// overlay/node is the node.
//
// A path is written node:NAME for the pass of that name, or node:FILE; node:NAME@BASE reaches the node by another path. TCP
// goes by CONNECT (RFC 9110, section 9.3.6) and UDP by CONNECT-UDP (RFC 9298), both inside TLS 1.3, in which device and node
// prove their keys.
//
// Do not use it to hide from the node, which sees who talks to whom, and content that is not encrypted.
package client

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/quic-go/quic-go/http3"

	"heddle/identity"
	"heddle/internal/errhint"
	"heddle/path"
	"heddle/path/masque"
)

// Scheme is the kind of these paths.
const Scheme = "node"

// Protocol is the ALPN (RFC 7301) of node connections over TCP: HTTP/1.1 with CONNECT, and the node's API under /v1/.
const Protocol = "heddle-node/1"

func init() {
	path.Register(path.Kind{Scheme: Scheme, Argument: "NAME or FILE", Carries: path.Datagrams | path.Streams,
		Tunnel: true, New: newPath})
}

// nodePath is a path through one node.
type nodePath struct {
	spec path.Spec
	o    path.Options

	mu    sync.Mutex
	reach *reach      // once pass and identity were read
	udp   path.Opener // once there was a flow
}

func newPath(s path.Spec, o path.Options) (path.Path, error) {
	if !IsFile(s.Arg) {
		if err := CheckName(s.Arg); err != nil {
			return nil, err
		}
	}
	if err := path.Need(o.Base, path.Streams, "the tunnel "+s.Name); err != nil {
		return nil, err
	}
	return &nodePath{spec: s, o: o}, nil
}

// Carries says what the path carries. Datagrams need a base that carries datagrams.
func (p *nodePath) Carries() path.Carries {
	return path.Streams | path.CarriesOf(p.base())&path.Datagrams
}

// Through makes a path by a pass, for the holder of id. It reaches the node by base; nil means this machine's own routes.
func Through(pass Pass, id identity.Identity, base path.Path) (path.Dialer, error) {
	if err := pass.Check(); err != nil {
		return nil, err
	}
	p := &nodePath{spec: path.Spec{Name: pass.Name, Kind: Scheme, Arg: pass.Name}, o: path.Options{Base: base}}
	r, err := newReach(pass, id, p.o, p.what())
	p.reach = r
	return p, err
}

// open reads pass and identity, once.
func (p *nodePath) open() (*reach, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reach != nil {
		return p.reach, nil
	}
	pass, err := LoadPass(p.spec.Arg)
	if err != nil {
		return nil, err
	}
	id, err := identity.LoadOr(p.o.Identity)
	if err != nil {
		return nil, err
	}
	r, err := newReach(pass, id, p.o, p.what())
	if err == nil {
		p.reach = r
	}
	return r, err
}

func (p *nodePath) what() string { return "path " + p.spec.Name }

// Dial makes the node connect to a target. The node resolves names. With [path.WithEarly], Dial returns once the node has
// proved its key, and the first Read returns the node's verdict on the destination.
func (p *nodePath) Dial(ctx context.Context, to path.Target) (net.Conn, error) {
	r, err := p.open()
	if err != nil {
		return nil, err
	}
	return r.dial(ctx, to.String())
}

// Open begins a UDP flow by the node. Flows of one session leave a node by one socket, whatever their base.
func (p *nodePath) Open(ctx context.Context, to netip.AddrPort) (path.Flow, error) {
	udp, err := p.datagrams()
	if err != nil {
		return nil, err
	}
	return udp.Open(ctx, to)
}

// datagrams returns the path for UDP, which has one connection for all its flows.
func (p *nodePath) datagrams() (path.Opener, error) {
	r, err := p.open()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.udp == nil {
		p.udp, err = r.datagrams(p.spec)
	}
	return p.udp, err
}

// Describe returns what this machine knows of the path.
func (p *nodePath) Describe() path.Info {
	info := path.Info{Name: p.spec.Name, Kind: p.spec.Kind, Arg: p.spec.Arg, Observer: Scheme + ":" + p.spec.Arg, Exit: Scheme + ":" + p.spec.Arg,
		Claim: "the network before the node sees TLS or QUIC to that node, its address, and the size and time of each packet, but not the server; the node sees your address and the server's, and what is not encrypted inside; the server and its network see the node's address in place of yours"}
	base := p.base().Describe()
	info.Addresses, info.Ready, info.Why, info.Hint = base.Addresses, base.Ready, base.Why, base.Hint
	r, err := p.open()
	if err != nil {
		info.Ready = false
		info.Why, info.Hint = err.Error(), errhint.Of(err)
		return info
	}
	// Use the key, since one node may have two names here.
	info.Observer = Scheme + ":" + r.pass.Key.Short()
	info.Exit, info.Endpoint = info.Observer, r.pass.Addresses[0]
	if udp, err := p.datagrams(); err == nil {
		about := udp.Describe()
		info.MTU, info.Fragments, info.Ready, info.Why, info.Hint = about.MTU, about.Fragments, about.Ready, about.Why, about.Hint
	}
	return info
}

func (p *nodePath) base() path.Path {
	if p.o.Base == nil {
		return path.NewSystem(p.o.Mark)
	}
	return p.o.Base
}

// reach is a node, and what it takes to reach it.
type reach struct {
	pass Pass
	what string // for errors
	o    path.Options
	tls  *tls.Config
	id   identity.Identity
}

// newReach makes a reach for the holder of id. A nil base means this machine's own routes.
func newReach(pass Pass, id identity.Identity, o path.Options, what string) (*reach, error) {
	if o.Base == nil {
		o.Base = path.NewSystem(o.Mark)
	}
	if err := path.Need(o.Base, path.Streams, what); err != nil {
		return nil, err
	}
	config, err := id.Client(pass.Key, Protocol)
	if err != nil {
		return nil, err
	}
	// For browsers, Go starts a connection with packet-sized records. Streams are faster with large ones.
	config.DynamicRecordSizingDisabled = true
	return &reach{pass: pass, what: what, o: o, tls: config, id: id}, nil
}

// datagrams makes the path for UDP.
func (r *reach) datagrams(s path.Spec) (path.Opener, error) {
	config, err := r.id.Client(r.pass.Key, http3.NextProtoH3)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if !r.pass.Grant.IsZero() {
		header.Set(GrantHeader, r.pass.Grant.String())
	}
	return masque.Through(s, r.o, masque.Known{Noun: "node", Authority: hex.EncodeToString(r.pass.Key.Bytes()[:16]) + ".node", Addresses: r.pass.Addresses,
		TLS: config, Header: header, Refused: func(status int, h http.Header) error { return refusalOf(status, h, time.Now()) }})
}
