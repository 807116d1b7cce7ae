package connlimit

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/netutil"
)

// Limits bound the concurrent connections: in total, per network ([Network]) and per source ([Source]).
type Limits struct{ All, Network, Source int }

// Strangers are the limits of connections that have not authenticated, each of which takes 14 to 46 KB. They hold once for known
// addresses and once for all others. Guests are the usual limits of authenticated connections.
var (
	Strangers = Limits{All: 1024, Network: 128, Source: 64}
	Guests    = Limits{All: 512, Network: 128, Source: 64}
	// local are those of a port for programs of this machine. All have the address of loopback, or any of its addresses that they
	// like, so only the total counts.
	local = Limits{All: 1024, Network: 1024, Source: 1024}
)

const (
	// firstByte is how long a connection may stay silent. TCP retransmits twice in that time (RFC 6298).
	firstByte = 5 * time.Second
	// knownFor is how long an address counts as known after an authentication.
	knownFor = time.Hour
	maxKnown = 4096
)

// Network returns the network of an address: /24 for IPv4, /56 for IPv6, which providers assign to one customer.
func Network(a netip.Addr) netip.Prefix {
	bits := 24
	if a = a.Unmap().WithZone(""); a.Is6() {
		bits = 56
	}
	p, _ := a.Prefix(bits) // of the zero address: none
	return p
}

// Places bounds the connections of a server that are not yet part of a session, and keeps strangers from locking users out.
//
// A new connection always gets a place. Beyond a limit, the source with the most connections loses its oldest one. If all
// sources have few, the network with the most does. A user with few connections so keeps them while anybody has more.
// Authenticated connections have places of their own, and so have connections from addresses that authenticated recently.
type Places struct {
	mu        sync.Mutex
	strangers pool
	neighbors pool // strangers at known addresses
	guests    pool
	known     map[netip.Addr]*list.Element
	order     list.List // of known addresses, by their last authentication
	quiet     bool      // see NewQuietPlaces
}

// known is an address that authenticated.
type known struct {
	source netip.Addr
	at     time.Time
}

// NewPlaces returns places with these limits of authenticated connections.
func NewPlaces(guests Limits) *Places { return newPlaces(Strangers, guests) }

// NewLocalPlaces returns the places of a port for programs of this machine. When all are taken, the source with the most
// connections loses its oldest one.
func NewLocalPlaces() *Places { return newPlaces(local, local) }

// NewQuietPlaces returns the places of a server that strangers must not recognise. Connections may stay silent, and one that loses
// its place is closed, not reset.
func NewQuietPlaces(guests Limits) *Places {
	p := NewPlaces(guests)
	p.quiet = true
	return p
}

func newPlaces(strangers, guests Limits) *Places {
	return &Places{strangers: newPool(strangers), neighbors: newPool(strangers), guests: newPool(guests), known: map[netip.Addr]*list.Element{}}
}

// Place is the place of one connection.
type Place struct {
	net.Conn
	in                  *Places
	pool                *pool // nil after it is released; in.mu guards it
	ofSource, ofNetwork *list.Element
	source              netip.Addr
	silent              *time.Timer // nil in quiet places
	heard               bool        // only for the reader
}

// Enter gives a connection a place. It may reset another connection for that. It also resets connections that send nothing for
// some seconds, so the server must read from the place instead of the connection. See [NewQuietPlaces] for servers without that.
func (p *Places) Enter(c net.Conn) *Place {
	e := &Place{Conn: c, in: p, source: SourceOf(c.RemoteAddr())}
	p.mu.Lock()
	if !p.quiet {
		e.silent = time.AfterFunc(firstByte, e.cut)
	}
	to := &p.strangers
	if p.knows(e.source) {
		to = &p.neighbors
	}
	out := to.add(e)
	p.mu.Unlock()
	if out != nil {
		out.cut()
	}
	return e
}

// Proved reports that the peer has authenticated.
func (e *Place) Proved() {
	p := e.in
	p.mu.Lock()
	p.remember(e.source)
	var out *Place
	if e.pool != nil && e.pool != &p.guests {
		e.pool.remove(e)
		out = p.guests.add(e)
	}
	p.mu.Unlock()
	if out != nil {
		out.cut()
	}
}

// Leave releases the place. The connection stays open.
func (e *Place) Leave() {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	e.stopSilent()
	if e.pool != nil {
		e.pool.remove(e)
	}
}

// Close releases the place and closes the connection.
func (e *Place) Close() error {
	e.Leave()
	return e.Conn.Close()
}

// NetConn returns the connection that holds the place.
func (e *Place) NetConn() net.Conn { return e.Conn }

func (e *Place) stopSilent() {
	if e.silent != nil {
		e.silent.Stop()
	}
}

// cut releases the place and resets the connection, or closes it in a quiet place.
func (e *Place) cut() {
	e.Leave()
	if e.in.quiet {
		e.Conn.Close()
		return
	}
	netutil.Reset(e.Conn)
}

// Read reads from the connection.
func (e *Place) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	if n > 0 && !e.heard {
		e.heard = true
		e.stopSilent()
	}
	return n, err
}

// Count returns how many places are taken.
func (p *Places) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.strangers.total + p.neighbors.total + p.guests.total
}

// knows reports whether a source authenticated recently. p.mu is held.
func (p *Places) knows(source netip.Addr) bool {
	at := p.known[source]
	return at != nil && time.Since(at.Value.(known).at) < knownFor
}

// remember records that a source authenticated. p.mu is held.
func (p *Places) remember(source netip.Addr) {
	if !source.IsValid() {
		return
	}
	if old := p.known[source]; old != nil {
		p.order.Remove(old)
	}
	p.known[source] = p.order.PushBack(known{source, time.Now()})
	if p.order.Len() > maxKnown {
		delete(p.known, p.order.Remove(p.order.Front()).(known).source)
	}
}

// fewOfSource is the number of connections up to which sources count as equal, so that networks are compared instead.
const fewOfSource = 4

// pool is what shares one [Limits].
type pool struct {
	limits   Limits
	total    int
	sources  ranking[netip.Addr]
	networks ranking[netip.Prefix]
}

func newPool(l Limits) pool {
	return pool{limits: l, sources: ranking[netip.Addr]{of: map[netip.Addr]*group{}}, networks: ranking[netip.Prefix]{of: map[netip.Prefix]*group{}}}
}

// add adds a place, and removes and returns the one that must go for it, or nil.
func (l *pool) add(e *Place) (out *Place) {
	e.pool = l
	l.total++
	e.ofSource = l.sources.add(e.source, e)
	e.ofNetwork = l.networks.add(Network(e.source), e)
	if out = l.excess(e); out != nil {
		l.remove(out)
	}
	return out
}

// excess returns the place that must go after e was added, or nil.
func (l *pool) excess(e *Place) *Place {
	source, network := l.sources.of[e.source], l.networks.of[Network(e.source)]
	// Connections without an address, such as those of a Unix socket, only share the total.
	addressed := e.source.IsValid()
	switch {
	case addressed && source.places.Len() > l.limits.Source:
		return source.oldest()
	case addressed && network.places.Len() > l.limits.Network:
		return l.heaviest(network)
	case l.total <= l.limits.All:
		return nil
	case l.sources.most > fewOfSource:
		return l.sources.top().oldest()
	}
	return l.heaviest(l.networks.top())
}

// remove removes a place.
func (l *pool) remove(e *Place) {
	e.pool = nil
	l.total--
	l.sources.remove(e.source, e.ofSource)
	l.networks.remove(Network(e.source), e.ofNetwork)
}

// heaviest returns the oldest place of the source with the most in a network.
func (l *pool) heaviest(network *group) (out *Place) {
	most := 0
	for at := network.places.Front(); at != nil; at = at.Next() {
		e := at.Value.(*Place)
		if has := l.sources.of[e.source].places.Len(); has > most {
			out, most = e, has
		}
	}
	return out
}

// ranking sorts groups by their number of places, to find the one with the most without a search.
type ranking[K comparable] struct {
	of     map[K]*group
	having []*list.List // groups, by their number of places
	most   int
}

// group holds the places of a source or network, oldest first.
type group struct {
	places list.List
	at     *list.Element // in having
}

func (g *group) oldest() *Place { return g.places.Front().Value.(*Place) }

// top returns the group with the most places; of several, the one that reached this number first.
func (r *ranking[K]) top() *group { return r.having[r.most].Front().Value.(*group) }

func (r *ranking[K]) add(key K, e *Place) *list.Element {
	g := r.of[key]
	if g == nil {
		g = &group{}
		r.of[key] = g
	}
	at := g.places.PushBack(e)
	r.sort(key, g, g.places.Len()-1)
	return at
}

func (r *ranking[K]) remove(key K, at *list.Element) {
	g := r.of[key]
	g.places.Remove(at)
	r.sort(key, g, g.places.Len()+1)
}

// sort moves a group that had this number of places before, or deletes it if it is empty.
func (r *ranking[K]) sort(key K, g *group, had int) {
	if had > 0 {
		r.having[had].Remove(g.at)
	}
	has := g.places.Len()
	for len(r.having) <= has {
		r.having = append(r.having, list.New())
	}
	if has > 0 {
		g.at = r.having[has].PushBack(g)
	} else {
		delete(r.of, key)
	}
	r.most = max(r.most, has)
	for r.most > 0 && r.having[r.most].Len() == 0 {
		r.most--
	}
}
