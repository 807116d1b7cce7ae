// Package gateway takes the connections to pseudonyms and leads them to the tenants, by the name in the ClientHello. It cannot read
// them. It relays all bytes, passes the connection itself to a tenant on its own machine, or moves it to a tenant on another one.
package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"

	"heddle/internal/connlimit"
	"heddle/internal/dial"
	"heddle/internal/netutil"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/ech"
	"heddle/pseudonym/recheck"
)

// Router knows where the tenant of a pseudonym is.
type Router interface {
	// Route returns where the tenant is. It fails with [pseudonym.ErrNone] if the pseudonym may not be used.
	Route(ctx context.Context, l pseudonym.Label) (Place, error)
	// Ended returns those of some pseudonyms that may not be used.
	Ended(ctx context.Context, labels []pseudonym.Label) ([]pseudonym.Label, error)
}

// Place is where a tenant is.
type Place struct {
	Addresses []string  // of its sidecars, HOST:PORT or unix:FILE; or of its agents, handoff:HOST:PORT
	Key       ca.KeyID  // of its sidecars and agents; zero for the cloud's own names, which are always relayed
	Until     time.Time // the pseudonym ends then, unless it is renewed; zero if it does not
}

// Ended reports whether the pseudonym has ended.
func (p Place) Ended(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }

// Options configure a gateway.
type Options struct {
	Zone   pseudonym.Zone
	Router Router
	Own    map[string][]string // addresses of the cloud's own names, such as store.ZONE
	Hellos func() []*ech.Key   // open encrypted ClientHellos; nil if the cloud has no such keys
	Mode   Mode
	Mover  *Mover // moves connections to agents; nil if it moves none
	Log    *slog.Logger
}

// Times that a gateway waits.
const (
	helloFor = 10 * time.Second // for a whole ClientHello
	routeFor = 5 * time.Second
	dialFor  = 5 * time.Second // all sidecars of a tenant
)

// Gateway relays connections. It is safe for concurrent use.
type Gateway struct {
	o        Options
	places   *connlimit.Places
	patience time.Duration // for a whole ClientHello
	dialer   dial.Failover
	// sidecars are ways to sidecars of this machine, by their files.
	sidecars ways[string]
	rechecks recheck.Checker
	// again and family have said why some connections do not move.
	again, family sync.Once

	mu    sync.Mutex
	live  map[pseudonym.Label]map[net.Conn]bool
	count Counts
}

// Counts tell what a gateway did.
type Counts struct {
	Live      int    `json:"live"` // connections
	Relayed   uint64 `json:"relayed"`
	Passed    uint64 `json:"passed"`    // to a sidecar of this machine, which has them from then on
	Moved     uint64 `json:"moved"`     // to the agent of another machine, which has them from then on
	Encrypted uint64 `json:"encrypted"` // of these, those whose name was not on the wire
	Refused   uint64 `json:"refused"`   // no ClientHello, or of no pseudonym
	Failed    uint64 `json:"failed"`    // the database or the tenant did not answer, or nothing of the tenant's takes the client
	BytesUp   uint64 `json:"bytes_up"`
	BytesDown uint64 `json:"bytes_down"`
	// AnswerAge is how old the oldest answer is, in seconds, by which the gateway leads while the database does not answer; 0 while it does.
	AnswerAge int64 `json:"answer_age_s"`
}

// done counts what relayed, passed and moved connections have in common.
func (n *Counts) done(first greeting) *Counts {
	if first.opened != nil {
		n.Encrypted++
	}
	return n
}

// relays are the limits of connections that a gateway relays. Many users may share one address.
var relays = connlimit.Limits{All: 65_536, Network: 8192, Source: 1024}

// New returns a gateway.
func New(o Options) *Gateway {
	g := &Gateway{o: o, places: connlimit.NewPlaces(relays), patience: helloFor, live: map[pseudonym.Label]map[net.Conn]bool{}}
	g.rechecks = recheck.Checker{End: g.endAll, Open: func(l pseudonym.Label) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.live[l] != nil
	}}
	if o.Router != nil {
		g.rechecks.Ended = o.Router.Ended
	}
	return g
}

// Counts returns the state of the gateway.
func (g *Gateway) Counts() Counts {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.count
	for _, all := range g.live {
		c.Live += len(all)
	}
	return c
}

// Serve relays connections until ctx ends.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	return netutil.Serve(ctx, l, func(c net.Conn) {
		go func() {
			place := g.places.Enter(c)
			defer place.Close()
			defer context.AfterFunc(ctx, func() { place.Close() })()
			g.take(ctx, place)
		}()
	})
}

var (
	errNoName    = errors.New("no name of this cloud")
	errNoSidecar = errors.New("it has no address that this gateway and this client can use")
)

func (g *Gateway) take(ctx context.Context, c *connlimit.Place) {
	first, err := g.greet(c)
	if err != nil {
		g.note(func(n *Counts) { n.Refused++ })
		return
	}
	l, place, err := g.route(ctx, first.name)
	switch {
	case errors.Is(err, errNoName), errors.Is(err, pseudonym.ErrNone):
		g.note(func(n *Counts) { n.Refused++ })
		return
	case err != nil:
		g.o.Log.Warn("cannot ask where a pseudonym leads", "error", err)
		g.note(func(n *Counts) { n.Failed++ })
		return
	}
	c.Proved()
	sidecars, done, why := g.handOver(ctx, c, place, first)
	if done {
		return
	}
	to, err := g.reach(ctx, c, sidecars, first)
	if err != nil {
		if why == nil || !errors.Is(err, errNoSidecar) { // else the log has it
			g.o.Log.Warn("a tenant cannot be reached", "addresses", sidecars, "error", err)
		}
		g.note(func(n *Counts) { n.Failed++ })
		return
	}
	if to == nil {
		g.note(func(n *Counts) { n.done(first).Passed++ })
		return
	}
	defer to.Close()
	if !g.begin(ctx, l, c) {
		return
	}
	defer g.end(l, c)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go g.expire(ctx, l, place.Until, c)
	if first.opened != nil {
		if err := g.retry(c, to, first.opened); err != nil {
			g.note(func(n *Counts) { n.Failed++ })
			return
		}
	}
	up, down, _ := netutil.Pipe(ctx, netutil.Side{Reader: c, Writer: c.NetConn()}, netutil.Side{Reader: to, Writer: to}, func(error) { c.Close(); to.Close() })
	g.note(func(n *Counts) {
		n.done(first).Relayed++
		n.BytesUp += uint64(up)
		n.BytesDown += uint64(down)
	})
}

// route returns the label of a pseudonym, or an empty one for an own name of the cloud, and where it leads.
func (g *Gateway) route(ctx context.Context, name string) (l pseudonym.Label, to Place, err error) {
	if own, ok := g.o.Own[name]; ok {
		return "", Place{Addresses: own}, nil
	}
	l, ok := g.o.Zone.Label(name)
	if !ok {
		return "", to, errNoName
	}
	to, err = g.ask(ctx, l)
	return l, to, err
}

// ask asks the router, for a bounded time.
func (g *Gateway) ask(ctx context.Context, l pseudonym.Label) (Place, error) {
	ctx, cancel := context.WithTimeout(ctx, routeFor)
	defer cancel()
	return g.o.Router.Route(ctx, l)
}

// reach connects to one of a tenant's sidecars. It returns no connection if the sidecar has the client's own.
func (g *Gateway) reach(ctx context.Context, c net.Conn, addresses []string, first greeting) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	if len(addresses) == 0 {
		return nil, errNoSidecar
	}
	if to, passes, err := g.passTo(ctx, c, addresses, first); passes {
		return to, err
	}
	to, err := g.dialer.Dial(ctx, addresses)
	if err != nil {
		return nil, err
	}
	if way, ok := to.(*net.UnixConn); ok {
		return g.pass(ctx, c, way, first)
	}
	return introduce(c.RemoteAddr(), c.LocalAddr(), to, first.send)
}

// introduce tells a server the client's address by the PROXY protocol, version 2, and what the client said so far.
func introduce(client, local net.Addr, to net.Conn, hello []byte) (net.Conn, error) {
	var b bytes.Buffer
	_, err := proxyproto.HeaderProxyFromAddrs(2, client, local).WriteTo(&b)
	if err == nil {
		_, err = io.Copy(to, io.MultiReader(&b, bytes.NewReader(hello)))
	}
	if err != nil {
		to.Close()
		return nil, err
	}
	return to, nil
}

// begin notes a connection. It reports false if the pseudonym was revoked meanwhile.
func (g *Gateway) begin(ctx context.Context, l pseudonym.Label, c net.Conn) bool {
	g.mu.Lock()
	if g.live[l] == nil {
		g.live[l] = map[net.Conn]bool{}
	}
	g.live[l][c] = true
	g.mu.Unlock()
	if l == "" {
		return true
	}
	if _, err := g.ask(ctx, l); errors.Is(err, pseudonym.ErrNone) {
		g.end(l, c)
		return false
	}
	return true
}

// expire closes a connection when its pseudonym ends, and returns when ctx has ended.
func (g *Gateway) expire(ctx context.Context, l pseudonym.Label, until time.Time, c net.Conn) {
	for !until.IsZero() && netutil.Sleep(ctx, time.Until(until)) == nil {
		to, err := g.ask(ctx, l)
		// A place without an end is where the router leads names of which it knows nothing.
		if err != nil || to.Until.IsZero() || to.Ended(time.Now()) {
			c.Close()
			return
		}
		until = to.Until
	}
}

func (g *Gateway) end(l pseudonym.Label, c net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.live[l], c)
	if len(g.live[l]) == 0 {
		delete(g.live, l)
	}
}

// Forget ends the connections of a label that may not be used any more, or of all such labels if it is empty, as soon as the router says which
// these are.
func (g *Gateway) Forget(ctx context.Context, l pseudonym.Label) {
	var labels []pseudonym.Label
	g.mu.Lock()
	for one := range g.live {
		if one != "" && (l == "" || l == one) {
			labels = append(labels, one)
		}
	}
	g.mu.Unlock()
	g.rechecks.Check(ctx, labels...)
}

// endAll closes the connections of a label.
func (g *Gateway) endAll(l pseudonym.Label) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.live[l] {
		c.Close()
	}
}

func (g *Gateway) note(f func(*Counts)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(&g.count)
}
