// Package node is an overlay node: it connects to destinations for holders of a grant, and for nobody else. Package
// overlay/client has the client's side and the grant.
//
// A node serves only grants of the grantors that it was given; without any it does not start. It bounds what strangers and
// holders can make it keep, and logs no destinations unless told to. For clients without Heddle, use package
// proxy/connectudp.
package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"heddle/identity"
	"heddle/internal/connlimit"
	"heddle/internal/netutil"
	"heddle/overlay/client"
	"heddle/path"
	"heddle/proxy/connectudp"
)

// Defaults of a node.
const (
	DefaultMaxFlows = 128
	DefaultDrain    = 5 * time.Second
	DefaultIdle     = 2 * time.Minute // of UDP flows; NATs keep a mapping at least as long (RFC 4787, REQ-5)
	// DefaultPort is a node's port, TCP and UDP.
	DefaultPort = 7443
)

// Limits on what strangers and holders can make the node keep.
const (
	maxAllFlows      = 2048
	maxHeaderBytes   = 8 << 10
	patienceGrant    = 10 * time.Second // from the first byte to the whole request
	patienceIdle     = 3                // times as long between requests
	patienceDial     = 10 * time.Second
	patienceResolve  = 5 * time.Second
	recheck          = 2 * time.Second // between checks of the revocation file
	keepUsageEvery   = 10 * time.Second
	surveysAtOnce    = 2
	patienceSurvey   = 2 * time.Minute
	longestRequest   = 16 << 10 // bytes of a body
	patienceRequest  = 10 * time.Second
	longestLease     = time.Hour
	maxLeasesByGrant = 16
)

// Options configure a node.
type Options struct {
	Identity   identity.Identity
	Name       string               // name in its own status
	Grantors   []identity.Key       // keys whose grants are valid
	Modes      []string             // modes offered, of [client.Modes]
	Deny       []client.Destination // destinations that no grant permits
	Revoked    string               // file of revocations, or empty; see [Revoke]
	Usage      string               // file of the bytes used per grant; empty: forgotten at a restart
	MaxFlows   int                  // connections and flows of one holder at a time
	Idle       time.Duration        // ends a UDP flow without traffic for this long
	Drain      time.Duration        // how long streams may continue once the node is told to stop
	LogTargets bool                 // log who talks to whom
	// Survey measures the path from here to a destination, for the mode survey. Its result becomes JSON.
	Survey func(ctx context.Context, to netip.AddrPort) (any, error)
	NAT    NAT // the kernel's rules, for the mode nat
	Log    *slog.Logger

	patience time.Duration // see patienceGrant and patienceIdle
	lookup   func(ctx context.Context, network, host string) ([]netip.Addr, error)
	now      func() time.Time
}

// Node is a listening node.
type Node struct {
	o        Options
	key      identity.Key
	log      *slog.Logger
	listener net.Listener
	server   *http.Server
	udp      *connectudp.Proxy // nil if the node carries only streams
	ledger   *ledger
	revoked  *revoked
	failures *connlimit.Failures
	crowd    *connlimit.Places // of connections that carry no stream
	flows    *connlimit.Limiter[identity.Key]
	surveys  chan struct{}
	leases   leases
	since    time.Time
	counts   counts
	streams  sync.WaitGroup
	ctx      context.Context // of all streams
	end      context.CancelFunc
}

// New makes a node on a listener and a UDP socket, which is nil for streams only. It owns both, even if it fails. It serves
// nobody before [Node.Run].
func New(l net.Listener, socket net.PacketConn, o Options) (*Node, error) {
	n, err := newNode(l, socket, o)
	if err != nil {
		l.Close()
		if socket != nil {
			socket.Close()
		}
	}
	return n, err
}

func newNode(l net.Listener, socket net.PacketConn, o Options) (*Node, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	n := &Node{o: o, key: o.Identity.Key(), log: o.Log, failures: connlimit.NewFailures(), crowd: connlimit.NewPlaces(connlimit.Guests),
		flows: connlimit.NewLimiter[identity.Key](o.MaxFlows, maxAllFlows), surveys: make(chan struct{}, surveysAtOnce), since: o.now()}
	n.leases.of = map[string]lease{}
	n.ctx, n.end = context.WithCancel(context.Background())
	var err error
	if n.revoked, err = openRevoked(o.Revoked); err != nil {
		return nil, err
	}
	if n.ledger, err = openLedger(o.Usage, o.now); err != nil {
		return nil, err
	}
	config, err := o.Identity.Server(func(key identity.Key) error { return nil }, client.Protocol)
	if err != nil {
		return nil, err
	}
	config.DynamicRecordSizingDisabled = true
	n.listener = &door{Listener: netutil.Patient(l), tls: config, crowd: n.crowd}
	if socket != nil {
		if n.udp, err = n.serveUDP(socket); err != nil {
			return nil, err
		}
	}
	n.server = &http.Server{Handler: http.HandlerFunc(n.serve), ReadHeaderTimeout: o.patience, IdleTimeout: patienceIdle * o.patience, MaxHeaderBytes: maxHeaderBytes,
		ConnContext: withVisitor, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	return n, nil
}

func (o *Options) complete() error {
	bad := func(why, hint string) error { return &path.Error{What: "node", Why: why, Hint: hint} }
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.patience == 0 {
		o.patience = patienceGrant
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.lookup == nil {
		o.lookup = net.DefaultResolver.LookupNetIP
	}
	switch {
	case o.Identity.IsZero():
		return bad("it has no identity", "`heddle node key` makes one")
	case len(o.Grantors) == 0:
		return bad("no grantor is given, so it would serve nobody", "name the keys of those whose grants count with --grantor; `heddle node key` prints this machine's own")
	case o.MaxFlows < 1:
		return bad("max-flows is not above 0", "")
	case len(o.Modes) == 0:
		return bad("it offers no mode", "--mode forward")
	case slices.Contains(o.Modes, client.ModeNAT) && o.NAT == nil:
		return bad("it has no table of address translation for the mode nat", "")
	case slices.Contains(o.Modes, client.ModeSurvey) && o.Survey == nil:
		return bad("it has nothing to measure with for the mode survey", "")
	}
	return nil
}

// Addr returns where the node listens; invalid if its listener is not TCP.
func (n *Node) Addr() netip.AddrPort { return netutil.AddrPort(n.listener.Addr()) }

// Key returns the node's key.
func (n *Node) Key() identity.Key { return n.key }

// Run serves until ctx ends, and then lets streams continue for a while.
func (n *Node) Run(ctx context.Context) error {
	running, end := context.WithCancel(ctx)
	defer end()
	var serving sync.WaitGroup
	var tcpErr, udpErr error
	serving.Go(func() {
		defer end()
		if err := n.server.Serve(n.listener); running.Err() == nil { // otherwise stop closed it
			tcpErr = err
		}
	})
	if n.udp != nil {
		serving.Go(func() {
			defer end()
			udpErr = n.udp.Run(running)
		})
	}
	look, keep := time.NewTicker(recheck), time.NewTicker(keepUsageEvery)
	defer look.Stop()
	defer keep.Stop()
	for running.Err() == nil {
		select {
		case <-running.Done():
		case <-look.C:
			n.enforce()
		case <-keep.C:
			if err := n.ledger.keep(); err != nil {
				n.log.Warn("it cannot be kept how much each grant has used: after a restart they may use it again", "err", err)
			}
		}
	}
	n.stop()
	serving.Wait()
	return errors.Join(tcpErr, udpErr, n.ledger.keep())
}

// stop ends all streams after a while.
func (n *Node) stop() {
	n.listener.Close()
	if open := n.flows.Count(); open > 0 {
		n.log.Info("stopping", "flows", open)
	}
	done := make(chan struct{})
	go func() { n.streams.Wait(); close(done) }()
	drain := time.NewTimer(n.o.Drain)
	defer drain.Stop()
	select {
	case <-done:
	case <-drain.C:
	}
	n.end()
	n.server.Close()
	n.streams.Wait()
	n.leases.releaseAll(n.o.NAT)
}

// enforce rereads revocations that have changed, and ends what they revoke.
func (n *Node) enforce() {
	changed, err := n.revoked.refresh()
	if err != nil {
		n.log.Error("nobody is served: what is revoked cannot be read", "err", err)
	}
	if changed || err != nil {
		n.ledger.cut(n.revoked.holds, &client.Refusal{Reason: client.ReasonRevoked})
	}
	n.leases.sweep(n.o.NAT, n.revoked.holds, n.o.now())
}
