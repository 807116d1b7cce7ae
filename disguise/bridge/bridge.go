// Package bridge is the server of disguised links. It recognises its clients by their first bytes and answers nobody else. It
// carries their links to one target, or to the destinations that they ask for.
//
// A bridge does not hide from its clients' targets, or from who watches both of its sides.
package bridge

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	random "math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/handshake"
	"heddle/disguise/link"
	"heddle/internal/connlimit"
	"heddle/internal/dial"
	"heddle/internal/netutil"
	"heddle/internal/reliable"
	"heddle/path"
	"heddle/proxy/targets"
)

// Defaults of [Options].
const (
	DefaultMaxLinks = 512
	DefaultIdle     = 2 * time.Minute
	DefaultMemory   = 1 << 30
)

// Limits of what clients can make a bridge hold.
const (
	maxPerSource = 64               // links
	streamsEach  = 1024             // streams of all links of a source
	maxStreams   = 4096             // streams of all links
	dialPatience = 30 * time.Second // for a target
	askPatience  = 30 * time.Second // for the request of a stream
	byePatience  = 2 * time.Second
)

// guests are the limits of connections that carry links.
var guests = connlimit.Limits{All: 8192, Network: 1024, Source: 512}

// Options configure a [Bridge].
type Options struct {
	Key    handshake.PublicKey
	Server *handshake.Server      // recognises clients
	Covers map[byte]cover.Factory // that clients may use, by number
	// DatagramCovers are those over UDP, for listeners by [Bridge.Packets].
	DatagramCovers map[byte]cover.Factory
	Link           link.Options
	// Target connects a link of mode 0. client is the address of the link's first connection. nil refuses such links.
	Target func(ctx context.Context, client net.Addr) (net.Conn, error)
	// Targets decides where links of mode 1 lead. nil refuses such links.
	Targets  *targets.Rules
	MaxLinks int           // 0 is the default
	Memory   int64         // bytes that all links hold beyond half a MiB each; 0 is the default
	Behind   bool          // connections are those of another web server, which passes on what its visitors ask for
	Idle     time.Duration // ends a flow of datagrams that carried nothing for so long; 0 is the default
	Log      *slog.Logger

	lookup  func(context.Context, string) ([]netip.Addr, error) // tests replace these
	clock   func() time.Time
	silence time.Duration
	bye     time.Duration // for the last blocks of links when the bridge stops; byePatience if zero
}

// Bridge carries the links of its clients.
type Bridge struct {
	o             Options
	main          *door // of listeners without covers of their own
	datagramLeads []int // how many bytes may precede a hello in a datagram
	places        *connlimit.Places
	front         cover.Fronted                  // the host of the main door behind another web server, or nil
	hosts         bool                           // a door has a host
	callers       atomic.Int32                   // connections over UDP, which have no place
	sources       *connlimit.Limiter[netip.Addr] // of links
	streams       *connlimit.Limiter[netip.Addr]
	memory        *reliable.Budget
	since         time.Time
	counts        counts
	work          sync.WaitGroup

	mu    sync.Mutex
	links map[uint32]*entry
	ended []uint32 // ids of the last links that ended, so that none is used again soon
}

// maxEnded bounds the ids that are remembered.
const maxEnded = 4096

// entry is one link of the table.
type entry struct {
	id     uint32
	mode   byte
	link   *link.Link
	source netip.Addr
	client net.Addr // of its first connection
	since  time.Time
	flows  flows

	carriers atomic.Int32 // connections

	staysLock sync.Mutex
	stays     []*hosted // connections behind another web server, oldest first

	reachLock sync.Mutex
	reached   map[netip.Addr]bool // where the client has shown that it receives datagrams
}

// maxReached bounds the addresses of one client.
const maxReached = 64

// reaches reports whether the client receives datagrams at an address, as it showed on this connection or on another one.
func (e *entry) reaches(at netip.Addr, here func() bool) bool {
	e.reachLock.Lock()
	defer e.reachLock.Unlock()
	shown := e.reached[at] || here()
	if shown && len(e.reached) < maxReached {
		e.reached[at] = true
	}
	return shown
}

// New makes a bridge. [Bridge.Serve] runs it.
func New(o Options) (*Bridge, error) {
	if o.Server == nil || len(o.Covers)+len(o.DatagramCovers) == 0 {
		return nil, &path.Error{What: "bridge", Why: "it has no key or no cover"}
	}
	if o.Target == nil && o.Targets == nil {
		return nil, &path.Error{What: "bridge", Why: "it leads nowhere", Hint: "give a target, or let clients ask for destinations"}
	}
	main, err := newDoor(o.Covers)
	if err != nil {
		return nil, err
	}
	front, places, err := o.behind(main.host)
	if err != nil {
		return nil, err
	}
	if o.MaxLinks == 0 {
		o.MaxLinks = DefaultMaxLinks
	}
	if o.Idle == 0 {
		o.Idle = DefaultIdle
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.silence == 0 {
		o.silence = silenceOf(o.Key)
	}
	if o.bye == 0 {
		o.bye = byePatience
	}
	if o.lookup == nil {
		o.lookup = dial.Lookup
	}
	if o.clock == nil {
		o.clock = time.Now
	}
	return &Bridge{o: o, main: main, front: front, hosts: main.host != nil, datagramLeads: leadsOf(o.DatagramCovers), places: places,
		sources: connlimit.NewLimiter[netip.Addr](maxPerSource, o.MaxLinks), streams: connlimit.NewLimiter[netip.Addr](streamsEach, maxStreams), memory: reliable.NewBudget(o.Memory), since: time.Now(),
		links: map[uint32]*entry{}}, nil
}

// behind returns the host if it is behind another web server, or else nil, and the places of connections.
func (o Options) behind(host cover.Host) (cover.Fronted, *connlimit.Places, error) {
	if !o.Behind {
		return nil, connlimit.NewQuietPlaces(guests), nil
	}
	front, ok := host.(cover.Fronted)
	if !ok || len(o.DatagramCovers) > 0 {
		return nil, nil, &path.Error{What: "bridge", Why: "only a website inside TLS can be behind another web server", Hint: "give it the cover https alone"}
	}
	return front, connlimit.NewLocalPlaces(), nil
}

// silenceOf draws how long a bridge listens to a stranger. Services differ in this, so bridges do too.
func silenceOf(key handshake.PublicKey) time.Duration {
	return time.Minute + time.Duration(random.New(key.Draw("silence")).Int64N(int64(2*time.Minute)))
}

// Serve takes connections until ctx ends. Then it tells the clients that the bridge stops, and ends all links.
func (b *Bridge) Serve(ctx context.Context, listeners ...net.Listener) error {
	carrying, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer b.work.Wait()
	defer stop()
	accepting, cancel := context.WithCancel(ctx)
	defer cancel()
	failed, working := make([]error, len(listeners)), map[*door]bool{}
	var doors sync.WaitGroup
	for i, l := range listeners {
		at := b.main
		if own, ok := l.(*apart); ok {
			at = own.door
		}
		if w, ok := at.host.(cover.Worker); ok && !working[at] {
			working[at] = true
			b.work.Go(func() { w.Work(accepting) })
		}
		doors.Go(func() {
			failed[i] = netutil.Serve(accepting, l, func(c net.Conn) { b.work.Go(func() { b.enter(carrying, at, c) }) })
			cancel()
		})
	}
	doors.Wait()
	b.sayBye()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// sayBye ends all links, and waits a moment for their clients to hear it and leave. Connections that begin stay open until then: a client takes one
// that ends for a path that failed, and may cut the others before it hears.
func (b *Bridge) sayBye() {
	all := map[*entry]bool{}
	for late := time.Now().Add(b.o.bye); time.Now().Before(late); time.Sleep(10 * time.Millisecond) {
		b.mu.Lock()
		for _, e := range b.links {
			all[e] = true
		}
		b.mu.Unlock()
		stays := false
		for e := range all {
			e.link.Reset(link.Stopping)
			stays = stays || e.carriers.Load() > 0
		}
		if !stays {
			return
		}
	}
}

// open adds a link with a new id to the table, if there is room.
func (b *Bridge) open(a *handshake.Accepted, client net.Addr, datagrams bool) (*entry, *link.Conn, error) {
	e := &entry{mode: a.Mode, client: client, source: connlimit.SourceOf(client), since: time.Now(), reached: map[netip.Addr]bool{}}
	room := b.sources.Acquire(e.source)
	b.mu.Lock()
	e.id = b.freshID()
	b.mu.Unlock()
	o := b.o.Link
	o.Bridge, o.Datagram, o.Remote, o.Memory = b.o.Key, e.flows.take, client, b.memory.Loan()
	if b.hosts && !datagrams {
		o.Unsent = hostedUnsent
	}
	var c *link.Conn
	var err error
	if e.link, c, err = link.Respond(o, a, e.id, datagrams); err != nil || !room {
		if room {
			b.sources.Release(e.source)
		}
		if err == nil {
			b.counts.full.Add(1)
			e.link.Reset(link.TooMany)
		}
		return nil, c, err
	}
	b.mu.Lock()
	b.links[e.id] = e
	b.mu.Unlock()
	b.counts.links.Add(1)
	return e, c, nil
}

// freshID draws an id that no link has, or had lately. b.mu is held.
func (b *Bridge) freshID() uint32 {
	for {
		var drawn [4]byte
		rand.Read(drawn[:])
		id := binary.BigEndian.Uint32(drawn[:])
		if id != 0 && b.links[id] == nil && !slices.Contains(b.ended, id) {
			return id
		}
	}
}

// find returns the link that a further connection joins, or nil.
func (b *Bridge) find(id uint32) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.links[id]
}

// forget removes a link that ended.
func (b *Bridge) forget(e *entry) {
	b.mu.Lock()
	delete(b.links, e.id)
	if len(b.ended) == maxEnded {
		b.ended = b.ended[1:]
	}
	b.ended = append(b.ended, e.id)
	b.mu.Unlock()
	b.sources.Release(e.source)
}
