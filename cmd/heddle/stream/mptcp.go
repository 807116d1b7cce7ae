package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/config"
	"heddle/identity"
	"heddle/overlay/client"
	"heddle/overlay/nat"
	"heddle/path"
	"heddle/stripe"
	"heddle/stripe/mptcp"
	"heddle/stripe/relay"
)

// leaseTTL is for how long a node translates after this program has died; a third of it is between two renewals.
const leaseTTL = 30 * time.Second

// kernelStream is a stream by the kernel's MPTCP through nodes in mode nat: `--plane mptcp` and `--plane mptcp-nat`.
type kernelStream struct {
	stripe   config.Stripe
	identity identity.Identity
	service  string
	keylog   io.Writer // or nil
	log      *slog.Logger
}

func newKernelStream(s config.Stripe, id identity.Identity, service string, keylog io.Writer, log *slog.Logger) *kernelStream {
	return &kernelStream{s, id, service, keylog, log}
}

// bySource reports that a subflow's node follows from the address that it leaves from, by rules at this machine.
func (k kernelStream) bySource() bool { return k.stripe.Plane == config.PlaneMPTCPNAT }

// kernelWay is a path of such a stream: a node, a lease there, and where this machine leaves for it.
type kernelWay struct {
	name   string
	rides  bool   // another path
	device string // to leave by, or empty where the routes decide
	client *client.Client
	seen   *seenDialer
	lease  client.NATLease
	local  nat.Rule // at this machine, where bySource
}

// kernelSession is the stream while it lasts.
type kernelSession struct {
	*mptcp.Conn
	release func()
}

// dialKernel leases a port at each node and connects through all of them. The leases end with the session, or, where this
// program is killed, [leaseTTL] later.
func dialKernel(ctx context.Context, k kernelStream, to netip.AddrPort) (Session, error) {
	ways, err := k.ways()
	if err != nil {
		return nil, err
	}
	release := sync.OnceFunc(func() { releaseWays(ways) })
	if err := k.leaseAll(ctx, ways, to); err != nil {
		release()
		return nil, err
	}
	peer, err := identity.ParseKey(k.stripe.Key)
	if err != nil {
		release()
		return nil, err
	}
	o := mptcp.Options{Identity: k.identity, Peer: peer, Service: k.service, MinPaths: k.stripe.MinPaths, Degrade: k.stripe.Degrade,
		Patience: k.stripe.Patience, SetPathManager: k.stripe.SetPathManager, Log: k.log, KeyLog: k.keylog}
	for _, w := range ways {
		s := mptcp.Subflow{Name: w.name, To: w.at(), From: w.seen.local.Addr(), Device: w.device}
		if k.bySource() {
			s.To, s.Through = to, s.To.Addr()
		}
		o.Subflows = append(o.Subflows, s)
	}
	c, err := mptcp.Dial(ctx, o)
	if err != nil {
		release()
		return nil, err
	}
	go k.renew(c, ways, to)
	return &kernelSession{c, release}, nil
}

// Close ends the stream in order, and then the leases.
func (s *kernelSession) Close() error {
	defer s.release()
	return s.Conn.Close()
}

// Abort ends the stream and the leases at once.
func (s *kernelSession) Abort(why string) {
	s.Conn.Abort(why)
	s.release()
}

// ways reads the paths, which must be nodes.
func (k kernelStream) ways() ([]*kernelWay, error) {
	var specs []path.Spec
	for _, text := range slices.Concat(k.stripe.Via, k.stripe.Path) {
		spec, err := path.ParseSpec(text)
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	var ways []*kernelWay
	for _, spec := range specs[:len(k.stripe.Via)] {
		if spec.Kind != client.Scheme {
			return nil, &path.Error{What: "path " + spec.Name, Why: "the kernel's MPTCP goes by nodes in mode nat, and this is " + spec.Kind + ":",
				Hint: "take node: paths, or --plane stripe, which goes by any kind"}
		}
		base, err := kernelBase(spec, specs)
		if err != nil {
			return nil, err
		}
		pass, err := client.LoadPass(spec.Arg)
		if err != nil {
			return nil, err
		}
		w := &kernelWay{name: spec.Name, rides: spec.Base != "", seen: &seenDialer{Path: base}}
		if w.client, err = client.New(pass, k.identity, w.seen); err != nil {
			return nil, err
		}
		ways = append(ways, w)
	}
	return ways, nil
}

// kernelBase is what a node's path rides. The kernel sends from this machine's addresses alone.
func kernelBase(spec path.Spec, all []path.Spec) (path.Path, error) {
	if spec.Base == "" {
		return path.NewSystem(0), nil
	}
	i := slices.IndexFunc(all, func(s path.Spec) bool { return s.Name == spec.Base })
	if i < 0 {
		return nil, &path.Error{What: "path " + spec.Name, Why: fmt.Sprintf("it rides %s, which is not here", spec.Base), Hint: "define " + spec.Base + " with --path"}
	}
	if kind := all[i].Kind; kind != "src" && kind != "if" {
		return nil, &path.Error{What: "path " + spec.Name, Why: "the kernel's MPTCP cannot ride " + spec.Base + ", which is " + kind + ":", Hint: "take src: or if:, or --plane stripe"}
	}
	return path.New(all[i], path.Options{})
}

// leaseAll asks all nodes at once.
func (k kernelStream) leaseAll(ctx context.Context, ways []*kernelWay, to netip.AddrPort) error {
	errs := make([]error, len(ways))
	var asking sync.WaitGroup
	for i, w := range ways {
		asking.Go(func() { errs[i] = k.leaseOne(ctx, w, to, 0) })
	}
	asking.Wait()
	if err := errors.Join(errs...); err != nil || !k.bySource() {
		return err
	}
	table, err := localTable()
	if err != nil {
		return err
	}
	for i, w := range ways {
		if slices.ContainsFunc(ways[:i], func(other *kernelWay) bool { return other.seen.local.Addr() == w.seen.local.Addr() }) {
			return &path.Error{What: "path " + w.name, Why: fmt.Sprintf("it leaves from %v as another does, and --plane mptcp-nat tells paths apart by that", w.seen.local.Addr()),
				Hint: "give each node's path a source address of its own to ride: --path x=src:ADDRESS --via a=node:NAME@x; or use --plane mptcp"}
		}
		w.local = nat.Rule{Client: w.seen.local.Addr(), Listen: to, To: w.at()}
		if _, err := table.Lease(w.local, leaseTTL); err != nil {
			w.local = nat.Rule{}
			return err
		}
	}
	return nil
}

func (k kernelStream) leaseOne(ctx context.Context, w *kernelWay, to netip.AddrPort, port uint16) (err error) {
	w.lease, err = w.client.Lease(ctx, client.NATRequest{To: to, Listen: port, TTL: int(leaseTTL / time.Second)})
	if w.rides && w.device == "" { // what it rode to the node holds on to a device, and so do the kernel's packets
		if device, known := strings.CutPrefix(w.seen.Describe().Observer, "if:"); known {
			w.device = device
		}
	}
	if err == nil && w.at().Addr().Is4() != to.Addr().Is4() {
		err = &path.Error{What: "path " + w.name, Why: fmt.Sprintf("its node is at %v and the peer at %v: one is IPv4, the other IPv6", w.at().Addr(), to.Addr())}
	}
	return err
}

// at is where this machine connects to.
func (w *kernelWay) at() netip.AddrPort {
	return netip.AddrPortFrom(w.seen.remote.Addr(), w.lease.Listen)
}

// localTable is this process's table for --plane mptcp-nat.
var localTable = sync.OnceValues(nat.OpenLocal)

// renew keeps the leases while the stream lasts. Where one cannot be kept its subflow dies, which the stream notices.
func (k kernelStream) renew(c *mptcp.Conn, ways []*kernelWay, to netip.AddrPort) {
	tick := time.NewTicker(leaseTTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-c.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), leaseTTL/3)
		var asking sync.WaitGroup
		for _, w := range ways {
			asking.Go(func() {
				if err := k.renewOne(ctx, w, to); err != nil {
					k.log.Warn("a lease is not renewed", "path", w.name, "err", err)
				}
			})
		}
		asking.Wait()
		cancel()
	}
}

func (k kernelStream) renewOne(ctx context.Context, w *kernelWay, to netip.AddrPort) error {
	_, err := w.client.Renew(ctx, w.lease, leaseTTL)
	if refusal, ok := errors.AsType[*client.Refusal](err); ok && refusal.Reason == client.ReasonLease {
		// The node was restarted: its kernel still has the lease, but nobody there knows whose it is.
		err = k.leaseOne(ctx, w, to, w.lease.Listen)
	}
	if !w.local.Client.IsValid() {
		return err
	}
	table, localErr := localTable()
	if localErr == nil {
		_, localErr = table.Renew(w.local, leaseTTL)
	}
	return errors.Join(err, localErr)
}

// releaseWays ends the leases.
func releaseWays(ways []*kernelWay) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	var asking sync.WaitGroup
	for _, w := range ways {
		asking.Go(func() {
			defer w.client.Close()
			if w.local.Client.IsValid() {
				if table, err := localTable(); err == nil {
					_ = table.Release(w.local) // it ends by itself in any case
				}
			}
			if w.lease.ID != "" {
				_ = w.client.Release(ctx, w.lease)
			}
		})
	}
	asking.Wait()
}

// seenDialer notes from where to where a path's TCP goes.
type seenDialer struct {
	path.Path

	mu            sync.Mutex
	local, remote netip.AddrPort
}

// Dial connects by the path.
func (d *seenDialer) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	c, err := path.Dial(ctx, d.Path, to)
	if err != nil {
		return nil, err
	}
	local, localOK := c.LocalAddr().(*net.TCPAddr)
	remote, remoteOK := c.RemoteAddr().(*net.TCPAddr)
	if !localOK || !remoteOK {
		c.Close()
		return nil, fmt.Errorf("it is no TCP of this machine's kernel")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.local.IsValid() {
		d.local, d.remote = unmapped(local), unmapped(remote)
	}
	return c, nil
}

func unmapped(a *net.TCPAddr) netip.AddrPort {
	at := a.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// Session is a session of either plane.
type Session interface {
	relay.Session
	Claim() string
	Peer() identity.Key
}

// listener takes streams of one plane.
type listener interface {
	Accept() (Session, error)
	Sessions() []Session
	Addr() net.Addr
	Close() error
}

// listenerOf makes the listener of a plane a streamListener.
type listenerOf[C Session] struct {
	port
	accept   func() (C, error)
	sessions func() []C
}

type port interface {
	Addr() net.Addr
	Close() error
}

func (l listenerOf[C]) Accept() (Session, error) {
	c, err := l.accept()
	if err != nil {
		return nil, err // not a C that is nil
	}
	return c, nil
}

func (l listenerOf[C]) Sessions() (all []Session) {
	for _, c := range l.sessions() {
		all = append(all, c)
	}
	return all
}

// listenPlane listens for peers of one plane. To MPTCP a leg of a stripe would be no path.
func listenPlane(ctx context.Context, a config.Admission, o stripe.ListenOptions) (listener, error) {
	if a.Plane == config.PlaneStripe {
		l, err := listenStream(ctx, a.Listen, "listen")
		if err != nil {
			return nil, err
		}
		s := stripe.NewListener(l, o)
		return listenerOf[*stripe.Conn]{s, s.Accept, s.Sessions}, nil
	}
	var c net.ListenConfig
	c.SetMultipathTCP(true)
	l, err := c.Listen(ctx, path.Family("tcp", a.Listen), a.Listen)
	if err != nil {
		return nil, &path.Error{What: "listen " + a.Listen, Why: "it cannot listen there", Err: err, Hint: "does another program listen there?"}
	}
	s, err := mptcp.NewListener(l, mptcp.ListenOptions{Identity: o.Identity, Accept: o.Accept, Service: o.Service, MaxSessions: o.MaxSessions, Log: o.Log, KeyLog: o.KeyLog})
	if err != nil {
		l.Close()
		return nil, err
	}
	return listenerOf[*mptcp.Conn]{s, s.Accept, s.Sessions}, nil
}
