package ovsswitch

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/openflow"
	"heddle/pseudonym/gateway/lead"
)

// Switch is the entries of a bridge for the gateway of this network namespace. It is safe for concurrent use.
type Switch struct {
	o      Options
	ttl    map[bool]uint8 // of this machine's own packets, by whether they are IPv6
	hops   *hops
	events *events

	common sync.Mutex // held while flows are added that connections share

	mu      sync.Mutex
	bridge  *openflow.Conn // nil while there is none
	last    uint64         // number
	entries map[key]*connection
	numbers map[uint64]*connection
	returns map[key]*connection // by tenant and client, in the place of client and gateway
	clients map[netip.Addr]*client
	shared  map[any]openflow.Flow // those of a tenant, by AddrPort, and of an address of the gateway, by Addr

	looking, settling *together

	end  chan struct{}
	done sync.WaitGroup
}

// client is one with connections that moved.
type client struct {
	number      uint64
	connections int
}

// New connects to the bridge, and goes on with the connections of an earlier process.
func New(o Options) (*Switch, error) {
	s := &Switch{o: o, ttl: map[bool]uint8{}, events: newEvents(), looking: newTogether(), settling: newTogether(), end: make(chan struct{}), entries: map[key]*connection{}, numbers: map[uint64]*connection{},
		returns: map[key]*connection{}, clients: map[netip.Addr]*client{}, shared: map[any]openflow.Flow{}}
	for _, v6 := range []bool{false, true} {
		ttl, err := lead.OwnTTL(v6)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		s.ttl[v6] = ttl
	}
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, err
	}
	s.last = binary.BigEndian.Uint64(seed[:]) >> 24 // so that two gateways at one bridge take other numbers
	var err error
	if s.hops, err = newHops(); err != nil {
		return nil, err
	}
	if err := s.begin(); err != nil {
		s.hops.close()
		return nil, err
	}
	s.done.Go(s.serve)
	s.done.Go(func() { s.settling.serve(s.end, s.settle) })
	s.done.Go(func() { s.looking.serve(s.end, s.look) })
	return s, nil
}

// look waits for a look of Open vSwitch, which is not sure to follow all changes.
func (s *Switch) look() {
	if bridge, err := s.current(); err == nil {
		_ = look(s.o.socket(), bridge, cacheFor)
	}
}

func (s *Switch) begin() error {
	bridge, err := dial(s.o, s.events.put)
	if err != nil {
		return err
	}
	err = look(s.o.socket(), bridge, patience)
	if err == nil {
		err = s.adopt(bridge)
	}
	if err == nil {
		err = s.fill(bridge)
	}
	if err != nil {
		return errors.Join(err, bridge.Close())
	}
	s.bridge = bridge
	return nil
}

func dial(o Options, got func(any)) (*openflow.Conn, error) {
	c, err := openflow.Dial(o.socket(), got)
	e := &errhint.Error{What: "the bridge " + o.Bridge + " of Open vSwitch", Err: err}
	_, version := errors.AsType[*openflow.Error](err)
	switch {
	case err == nil:
		return c, nil
	case version:
		e.Hint = "ovs-vsctl add bridge BRIDGE protocols OpenFlow14"
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED):
		e.Hint = "gateway-bridge names the bridge, or the file of its socket; ovs-vsctl list-br lists the bridges"
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		e.Hint = "give this process the right to use the socket: run it as root, or change the owner of the socket"
	}
	return nil, e
}

// Check reports why New would fail, or nil. It changes nothing.
func Check(o Options) error {
	c, err := dial(o, func(any) {})
	if err != nil {
		return err
	}
	return errors.Join(look(o.socket(), nil, patience), c.Close())
}

// adopt takes over the connections of an earlier process: those to an address of this machine.
func (s *Switch) adopt(bridge *openflow.Conn) error {
	all, err := bridge.Flows(prefix, prefixMask)
	if err != nil {
		return err
	}
	own, err := netlink.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	local := map[netip.Addr]bool{}
	for _, a := range own {
		at, _ := netip.AddrFromSlice(a.IP)
		local[at.Unmap()] = true
	}
	macs := map[uint64]net.HardwareAddr{} // of next hops to clients, by number
	for _, f := range all {
		if number, of := split(f.Cookie); of == roleBack {
			macs[number] = f.Sets.Get(openflow.EthDst)
		}
	}
	for _, f := range all {
		number, of := split(f.Cookie)
		client, gateway := f.Match.Addresses()
		at, ok := netip.AddrFromSlice(f.Sets.Get(openflow.Target(client.Addr()).Type))
		if of != roleTo || !ok || !local[gateway.Addr()] {
			continue
		}
		c := &connection{client: client, gateway: gateway, tenant: netip.AddrPortFrom(at, gateway.Port()), number: number}
		if s.hopsOf(c, s.hops.route) != nil {
			continue // it goes on with the flows that it has
		}
		s.hops.learn(c.toTenant, f.Sets.Get(openflow.EthDst))
		s.hops.learn(c.toClient, macs[number])
		s.add(c)
		s.share(c)
	}
	return nil
}

// hopsOf finds the next hops of a connection.
func (s *Switch) hopsOf(c *connection, find func(netip.Addr) (hop, error)) (err error) {
	if c.toTenant, err = find(c.tenant.Addr()); err == nil {
		c.toClient, err = find(c.client.Addr())
	}
	return err
}

// add makes an entry. s.mu is held, or nobody else knows s.
func (s *Switch) add(c *connection) {
	c.last = time.Now()
	s.entries[c.key()], s.numbers[c.number], s.returns[key{c.tenant, c.client}] = c, c, c
	of := s.clients[c.client.Addr()]
	if of == nil {
		of = &client{number: s.next()}
		s.clients[c.client.Addr()] = of
	}
	of.connections++
}

// drop removes an entry, and returns the changes that remove its flows, or none if it is gone. s.mu is held.
func (s *Switch) drop(c *connection) []openflow.Change {
	if s.numbers[c.number] != c {
		return nil
	}
	delete(s.numbers, c.number)
	if s.entries[c.key()] == c {
		delete(s.entries, c.key())
	}
	if k := (key{c.tenant, c.client}); s.returns[k] == c {
		delete(s.returns, k)
	}
	changes := remove(c.number, ofConnection...)
	of := s.clients[c.client.Addr()]
	if of.connections--; of.connections == 0 {
		delete(s.clients, c.client.Addr())
		changes = append(changes, remove(of.number, roleClient)...)
	}
	return changes
}

// share notes the flows that a connection shares with others, and returns those that are missing. s.mu is held, or nobody else knows s.
func (s *Switch) share(c *connection) (missing []any) {
	for _, of := range []any{c.tenant, c.gateway.Addr()} {
		if _, has := s.shared[of]; has {
			continue
		}
		if at, is := of.(netip.AddrPort); is {
			s.shared[of] = ofTenant(s.next(), at)
		} else {
			s.shared[of] = ofPublic(s.next(), of.(netip.Addr))
		}
		missing = append(missing, of)
	}
	return missing
}

// next returns a number that is free.
func (s *Switch) next() uint64 {
	s.last = (s.last + 1) & (1<<(48-firstOf) - 1)
	return s.last
}

// fill adds all flows to a bridge that may have none.
func (s *Switch) fill(bridge *openflow.Conn) error {
	s.mu.Lock()
	var changes []openflow.Change
	for _, f := range s.shared {
		changes = append(changes, f.Add())
	}
	for at, c := range s.clients {
		changes = append(changes, ofClient(c.number, at).Add())
	}
	for _, c := range s.entries {
		changes = append(changes, s.flows(c)...)
	}
	s.mu.Unlock()
	const atOnce = 1000
	for len(changes) > 0 {
		n := min(atOnce, len(changes))
		if err := bridge.Change(changes[:n]...); err != nil {
			return err
		}
		changes = changes[n:]
	}
	return nil
}

func (s *Switch) flows(c *connection) (changes []openflow.Change) {
	for _, f := range c.flows(s.hops.mac, s.ttl[c.client.Addr().Is6()]) {
		changes = append(changes, f.Add())
	}
	return changes
}

var errNoBridge = errors.New("the bridge is not there; it is tried again")

// current returns the bridge.
func (s *Switch) current() (*openflow.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bridge == nil {
		return nil, errNoBridge
	}
	return s.bridge, nil
}

// Lead leads the packets of a connection between client and gateway to its tenant from then on, which has it with the same port.
func (s *Switch) Lead(client, gateway, tenant netip.AddrPort) error {
	if err := lead.Check(client, gateway, tenant); err != nil {
		return err
	}
	bridge, err := s.current()
	if err != nil {
		return err
	}
	c := &connection{client: client, gateway: gateway, tenant: tenant}
	if err := s.hopsOf(c, s.hops.find); err != nil {
		return err
	}
	if err := s.prepare(bridge, c); err != nil {
		return err
	}
	s.mu.Lock()
	if _, has := s.entries[c.key()]; !has && len(s.entries) >= s.o.most() {
		s.mu.Unlock()
		return fmt.Errorf("the bridge leads %d connections, which is the most", s.o.most())
	}
	var changes []openflow.Change
	for _, old := range []*connection{s.entries[c.key()], s.returns[key{tenant, client}]} {
		if old != nil {
			changes = append(changes, s.drop(old)...)
		}
	}
	c.number = s.next()
	s.add(c)
	changes = append(changes, ofClient(s.clients[client.Addr()].number, client.Addr()).Add())
	s.mu.Unlock()
	err = bridge.Change(append(changes, s.flows(c)...)...)
	if err != nil {
		s.mu.Lock()
		changes = s.drop(c)
		s.mu.Unlock()
		return errors.Join(err, bridge.Change(changes...))
	}
	s.looking.wait(s.end) // without that, packets of the client may still come here, where nobody answers them, and come again
	return nil
}

// prepare adds the flows that connections share. Until the bridge has looked at its cache, a packet of the tenant's could leave as a former flow
// would let it: with the tenant's address. So prepare waits until it must have.
func (s *Switch) prepare(bridge *openflow.Conn, c *connection) error {
	s.common.Lock()
	defer s.common.Unlock()
	s.mu.Lock()
	missing := s.share(c)
	var changes []openflow.Change
	for _, of := range missing {
		changes = append(changes, s.shared[of].Add())
	}
	s.mu.Unlock()
	if len(missing) == 0 {
		return nil
	}
	if err := bridge.Change(changes...); err != nil {
		s.mu.Lock()
		for _, of := range missing {
			delete(s.shared, of)
		}
		s.mu.Unlock()
		return err
	}
	s.Settle()
	return nil
}

// Close lets go of the bridge, which goes on without it.
func (s *Switch) Close() error {
	close(s.end)
	s.done.Wait()
	s.hops.close()
	if s.bridge != nil {
		return s.bridge.Close()
	}
	return nil
}

// Times of what the switch does without being asked.
const (
	lookEvery = 5 * time.Second  // for hops whose Ethernet address changed
	tryEvery  = time.Second / 10 // to reach the bridge
)

// serve does what the bridge asks for, connects to it again, and follows changes of hops.
func (s *Switch) serve() {
	look, try := time.NewTicker(lookEvery), time.NewTicker(tryEvery)
	defer look.Stop()
	defer try.Stop()
	for {
		bridge, _ := s.current()
		var ended <-chan struct{}
		if bridge != nil {
			ended = bridge.Ended()
		}
		select {
		case <-s.end:
			return
		case <-s.events.wake:
			for _, e := range s.events.take() {
				s.handle(bridge, e)
			}
		case <-ended:
			s.set(nil)
		case <-try.C:
			if bridge == nil {
				s.connect()
			}
		case <-look.C:
			if bridge != nil {
				_ = s.follow(bridge)
			}
		}
	}
}

func (s *Switch) set(bridge *openflow.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bridge = bridge
}

// connect connects to a bridge that was gone, and fills it again.
func (s *Switch) connect() {
	bridge, err := dial(s.o, s.events.put)
	if err != nil {
		return
	}
	if err := s.fill(bridge); err != nil {
		_ = bridge.Close()
		return
	}
	s.set(bridge)
}

// follow gives new flows to connections whose next hop has another Ethernet address.
func (s *Switch) follow(bridge *openflow.Conn) error {
	changed, err := s.hops.again()
	if err != nil || len(changed) == 0 {
		return err
	}
	s.mu.Lock()
	var changes []openflow.Change
	for _, c := range s.entries {
		if changed[c.toTenant] || changed[c.toClient] {
			changes = append(changes, s.flows(c)...)
		}
	}
	s.mu.Unlock()
	return bridge.Change(changes...)
}
