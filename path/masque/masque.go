// Package masque is the kind of path through an HTTP/3 proxy: CONNECT-UDP (RFC 9298) with HTTP datagrams (RFC 9297) in QUIC
// datagrams (RFC 9221). Package proxy/connectudp is the server. A path is written
// masque:https://HOST[:PORT][/TEMPLATE][#sha256=HEX[,HEX...]]. Its flows share one connection, which opens with the first
// flow and closes some time after the last one.
//
// Do not use it to hide from the proxy, which sees both client and server.
package masque

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"heddle/path"
)

// Scheme is the name of the kind.
const Scheme = "masque"

func init() {
	path.Register(path.Kind{Scheme: Scheme, Argument: "proxy", Carries: path.Datagrams, Tunnel: true, New: newPath})
	// Otherwise quic-go prints a warning about small socket buffers to the terminal of an unprivileged user.
	if _, given := os.LookupEnv(bufferWarning); !given {
		os.Setenv(bufferWarning, "true")
	}
}

const bufferWarning = "QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING"

// keepIdle is how long the connection stays open after its last flow was closed.
const keepIdle = 30 * time.Second

// tunnel is a path through one proxy.
type tunnel struct {
	spec     path.Spec
	o        path.Options
	template Template
	keep     time.Duration       // see keepIdle
	pins     [][sha256.Size]byte // of the certificate's public key; empty means the system's roots
	known    *Known              // nil for a proxy of a URL

	mu       sync.Mutex
	conn     *connection
	dialing  chan struct{} // closed at the end of the current dial; nil if there is none
	idle     *time.Timer
	refusals refusals
	narrow   time.Time // until when packets start small
}

// newPath returns the path. It sends nothing.
func newPath(s path.Spec, o path.Options) (path.Path, error) {
	text, fragment, pinned := strings.Cut(s.Arg, "#")
	bad := func(err error) (path.Path, error) {
		return nil, &path.Error{What: "path " + s.Name, Why: "its proxy cannot be read", Err: err,
			Hint: "write " + s.Name + "=masque:https://proxy.example, and #sha256=HEX behind it to pin a certificate of your own"}
	}
	template, err := ParseTemplate(text)
	if err != nil {
		return bad(err)
	}
	p := &tunnel{spec: s, o: o, template: template, keep: keepIdle}
	if pinned {
		if p.pins, err = parsePins(fragment); err != nil {
			return bad(err)
		}
	}
	return p, path.Need(p.o.Base, path.Datagrams, "the tunnel "+s.Name)
}

// parsePins parses sha256=HEX[,HEX...].
func parsePins(text string) ([][sha256.Size]byte, error) {
	list, ok := strings.CutPrefix(text, "sha256=")
	if !ok {
		return nil, errors.New("what follows the # is not sha256=HEX")
	}
	var pins [][sha256.Size]byte
	for _, one := range strings.Split(list, ",") {
		raw, err := hex.DecodeString(one)
		if err != nil || len(raw) != sha256.Size {
			return nil, fmt.Errorf("a pin is %d hexadecimal digits, which %q is not", 2*sha256.Size, one)
		}
		pins = append(pins, [sha256.Size]byte(raw))
	}
	return pins, nil
}

// Open opens a flow on the connection to the proxy, which it makes if there is none.
func (p *tunnel) Open(ctx context.Context, to netip.AddrPort) (path.Flow, error) {
	if !to.IsValid() || to.Port() == 0 {
		return nil, p.problem(fmt.Sprintf("%v is no address to send to", to), "")
	}
	c, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.refusals.standing(to, time.Now()); err != nil {
		p.release(c)
		return nil, err
	}
	f, err := c.open(ctx, to)
	if err != nil {
		p.release(c)
		return nil, p.remember(ctx, to, err)
	}
	p.refusals.forgive(to)
	return f, nil
}

// connect returns the connection; the caller must release it. One caller dials, and the others wait.
func (p *tunnel) connect(ctx context.Context) (*connection, error) {
	for {
		p.mu.Lock()
		if c := p.conn; c != nil && c.alive() {
			c.uses++
			p.stopIdle()
			p.mu.Unlock()
			return c, nil
		}
		if err := p.refusals.standing(netip.AddrPort{}, time.Now()); err != nil {
			p.mu.Unlock()
			return nil, err
		}
		wait := p.dialing
		if wait == nil {
			p.dialing = make(chan struct{})
			p.mu.Unlock()
			return p.dialFirst(ctx)
		}
		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, p.problem("the connection to the proxy is not made yet", "")
		}
	}
}

// dialFirst dials and wakes the callers that wait.
func (p *tunnel) dialFirst(ctx context.Context) (*connection, error) {
	c, err := p.dial(ctx)
	if err != nil {
		err = p.remember(ctx, netip.AddrPort{}, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.dialing)
	p.dialing = nil
	if err != nil {
		return nil, err
	}
	p.refusals.forgive(netip.AddrPort{})
	p.stopIdle()
	p.conn = c
	c.uses = 1
	return c, nil
}

// release ends one use of a connection. After the last one the idle timer starts.
func (p *tunnel) release(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.uses--
	switch {
	case c.uses > 0:
	case p.conn != c || !c.alive():
		go c.close()
	default:
		p.stopIdle()
		p.idle = time.AfterFunc(p.keep, func() { p.expire(c) })
	}
}

func (p *tunnel) expire(c *connection) {
	p.mu.Lock()
	unused := c.uses == 0
	if unused && p.conn == c {
		p.conn = nil
	}
	p.mu.Unlock()
	if unused {
		c.close()
	}
}

// stopIdle stops the idle timer. p.mu is held.
func (p *tunnel) stopIdle() {
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
}

// remember records a failure, so that it is not retried at once. A canceled context is no failure.
func (p *tunnel) remember(ctx context.Context, to netip.AddrPort, err error) error {
	if !errors.Is(ctx.Err(), context.Canceled) {
		p.refusals.note(to, err, time.Now())
	}
	return err
}

// Known is a proxy without a URL: how to reach and verify it, and what a client sends to it.
type Known struct {
	Noun      string                                // name of the proxy in errors, such as "node"
	Authority string                                // in requests; not a name to look up
	Addresses []string                              // HOST:PORT each
	TLS       *tls.Config                           // for its connections, with the ALPN protocol of HTTP/3
	Header    http.Header                           // sent with each request
	Refused   func(status int, h http.Header) error // explains a response that is no success
}

// Through returns the path through a known proxy.
func Through(s path.Spec, o path.Options, k Known) (path.Opener, error) {
	template, err := ParseTemplate("https://" + k.Authority)
	if err != nil {
		return nil, err
	}
	if o.Base == nil {
		o.Base = path.NewSystem(o.Mark)
	}
	return &tunnel{spec: s, o: o, template: template, keep: keepIdle, known: &k}, nil
}

// Describe describes the path now. Without a connection, the MTU is the one that a connection would start with.
func (p *tunnel) Describe() path.Info {
	endpoint := net.JoinHostPort(p.template.Host, strconv.Itoa(int(p.template.Port)))
	place := Scheme + ":" + endpoint
	base := p.o.Base.Describe()
	info := path.Info{Name: p.spec.Name, Kind: p.spec.Kind, Arg: p.spec.Arg, Observer: place, Exit: place, Endpoint: endpoint,
		Addresses: base.Addresses, Ready: base.Ready, Why: base.Why, Hint: base.Hint,
		Claim: "the network before " + p.template.Host + " sees QUIC to that proxy, its name and address, and the size and time of each packet, but not the server; the proxy sees your address and the server's; the server and its network see the proxy's address in place of yours"}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.conn; c != nil && c.alive() {
		info.MTU = c.mtu()
		return info
	}
	if size := firstPacket(base.MTU, p.proxyFamilyOverhead()); size > 0 && base.MTU > 0 {
		info.MTU = payloadOf(size) + headers4
	} else if size == 0 && info.Ready && firstPacket(base.MTU, headers4) == 0 {
		info.Explain(p.tooNarrow(base.MTU, headers4))
	}
	if err := p.refusals.standing(netip.AddrPort{}, time.Now()); err != nil && info.Ready {
		info.Explain(err)
	}
	return info
}

func (p *tunnel) problem(why, hint string) *path.Error {
	if p.known != nil {
		why = strings.ReplaceAll(why, "the proxy", "the "+p.known.Noun)
	}
	return &path.Error{What: "path " + p.spec.Name, Why: why, Hint: hint}
}
