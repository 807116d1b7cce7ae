// Package tunnel makes a WireGuard file into a tunnel over several paths. As root this is a TUN device with addresses,
// routes, DNS and commands as in wg-quick(8), and a kill switch. Without root it is a network stack inside this process.
//
// All changes to this machine are journaled first, so that [Tunnel.Close], or [Clean] after a crash, reverts them. The kill
// switch, or the guard of a tunnel for a part of the addresses, is set first and removed last: after a crash nothing that it
// blocks leaves until somebody cleans up.
//
// Do not use this package for a server, nor for a tunnel over one path, which the kernel's WireGuard serves faster.
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/tun/netstack"

	"heddle/internal/journal"
	"heddle/path"
	"heddle/split"
)

// Tunnel is one WireGuard session over several paths.
type Tunnel struct {
	o       Options
	plan    *plan // nil for a userspace tunnel
	session *split.Session
	bind    *split.Bind
	journal *journal.Journal
	left    bool // a crashed tunnel left its guard, which stays if the start fails
	engine  *engine
	control *controlSocket
	net     *netstack.Net
	done    chan struct{}

	planned  int          // MTU
	mtu      atomic.Int64 // now
	warnings []string     // about the plan
}

// New checks the options and plans the tunnel. It changes and sends nothing.
func New(o Options) (*Tunnel, error) {
	t := &Tunnel{o: o, done: make(chan struct{})}
	o.Split.Session, o.Split.To, o.Split.Log = o.Name, o.Config.Peer.Endpoint, o.log()
	if o.Userspace {
		mtu, warning, err := chooseMTU(&o)
		if err != nil {
			return nil, err
		}
		t.planned = mtu
		if warning != "" {
			t.warnings = []string{warning}
		}
	} else {
		p, err := makePlan(&o)
		if err != nil {
			return nil, err
		}
		t.plan, o.Split.Mark = p, p.mark
		o.Split.AskPaths = t.KillSwitch()
		t.planned, t.warnings = p.mtu, p.warnings
	}
	t.mtu.Store(int64(t.planned))
	session, err := split.NewSession(o.Split)
	if err != nil {
		return nil, err
	}
	t.session = session
	t.bind, err = split.NewBind(session, split.Keys{
		Private:    o.Config.Interface.PrivateKey.Bytes(),
		PeerPublic: o.Config.Peer.PublicKey.Bytes(),
		Preshared:  o.Config.Peer.PresharedKey.Bytes(),
	})
	return t, err
}

// Changes lists what Up changes on this machine, in order, a line each. A userspace tunnel changes nothing.
func (t *Tunnel) Changes() []string {
	var lines []string
	if t.plan != nil {
		for _, c := range append(t.plan.before, t.plan.after...) {
			lines = append(lines, c.String())
		}
	}
	return lines
}

// Warnings says what of the file or the options has no effect, one sentence each.
func (t *Tunnel) Warnings() []string { return t.warnings }

// Up sets the guard, resolves the server's name, proves the paths, and only then makes the tunnel and sends traffic into
// it. With a kill switch, which would block this machine's resolver, it asks for the name over the paths. Up returns after the
// first handshake. If it fails, it reverts what it did. It calls guarded once the guard holds; tell receives progress. Both may
// be nil.
func (t *Tunnel) Up(ctx context.Context, guarded func(), tell func(string)) error {
	if t.plan != nil {
		if err := t.openJournal(); err != nil {
			return err
		}
	}
	if guarded == nil {
		guarded = func() {}
	}
	err := t.up(ctx, guarded, tell)
	if err != nil {
		return errors.Join(err, t.close(t.left))
	}
	return nil
}

// openJournal opens the journal and takes over the guard that [Clean] kept.
func (t *Tunnel) openJournal() error {
	j, err := openJournal(t.o.Dir, t.o.Name)
	if err != nil {
		return err
	}
	t.journal, t.left = j, t.Guarded() && j.Guards() > 0
	_, err = j.Undo(t.left)
	return err
}

func (t *Tunnel) up(ctx context.Context, guarded func(), tell func(string)) error {
	if t.plan == nil {
		guarded()
		if err := t.session.Resolve(ctx); err != nil {
			return err
		}
		if err := t.session.Prove(ctx, tell); err != nil {
			return err
		}
		if err := t.fit(); err != nil {
			return err
		}
		if err := t.userspace(); err != nil {
			return err
		}
		return t.shake(ctx)
	}
	rest, err := t.setGuard(ctx)
	if err != nil {
		return err
	}
	guarded()
	if err := t.resolve(ctx); err != nil {
		return err
	}
	if err := t.session.Prove(ctx, tell); err != nil {
		return err
	}
	if err := t.makeDevice(ctx, rest); err != nil {
		return err
	}
	if err := t.fit(); err != nil {
		return err
	}
	for _, c := range t.plan.after {
		if err := t.do(ctx, c); err != nil {
			return err
		}
	}
	return t.shake(ctx)
}

// setGuard makes the first change of the plan if it is a firewall, and returns the rest of the first half.
func (t *Tunnel) setGuard(ctx context.Context) (rest []change, err error) {
	if err := otherKillSwitch(tableName(t.o.Name)); err != nil {
		return nil, err
	}
	if f, ok := t.plan.before[0].(*firewall); ok {
		return t.plan.before[1:], t.do(ctx, f)
	}
	return t.plan.before, nil
}

// resolve looks the server's name up.
func (t *Tunnel) resolve(ctx context.Context) error {
	err := t.session.Resolve(ctx)
	if err != nil && t.KillSwitch() {
		return &path.Error{What: "tunnel " + t.o.Name, Why: "under its kill switch only the paths may ask for the server's name", Err: err,
			Hint: "is the name spelled right? The server's address as the file's Endpoint needs no lookup, and with --kill-switch=false this machine's resolver is asked"}
	}
	return err
}

// makeDevice makes the rest of the first half of the plan.
func (t *Tunnel) makeDevice(ctx context.Context, rest []change) error {
	for _, c := range rest {
		if d, ok := c.(*deviceChange); ok {
			d.create, d.remove = t.createDevice, t.removeDevice
		}
		if err := t.do(ctx, c); err != nil {
			return err
		}
	}
	return t.start()
}

func (t *Tunnel) do(ctx context.Context, c change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.o.log().Debug("change", "tunnel", t.o.Name, "what", c.String())
	return t.journal.Do(c)
}

// createDevice makes the TUN device. The kernel removes it when this process ends.
func (t *Tunnel) createDevice() error {
	dev, err := tun.CreateTUN(t.o.Name, t.plan.mtu)
	if err != nil {
		return err
	}
	t.engine, err = newEngine(dev, t.bind, t.o.Config, t.plan.mark, t.o.log())
	if err != nil {
		return err
	}
	t.control = serveControl(t.o.Name, t.engine.device, t.o.log())
	return nil
}

func (t *Tunnel) removeDevice() {
	t.control.close()
	if t.engine != nil {
		t.engine.device.Close()
	}
}

// userspace makes the network stack.
func (t *Tunnel) userspace() error {
	var addresses []netip.Addr
	for _, p := range t.o.Config.Interface.Addresses {
		addresses = append(addresses, p.Addr())
	}
	dev, stack, err := netstack.CreateNetTUN(addresses, t.o.Config.Interface.DNS, t.MTU())
	if err != nil {
		return &path.Error{What: "userspace tunnel " + t.o.Name, Why: "it cannot be made", Err: err}
	}
	t.net = stack
	t.engine, err = newEngine(dev, t.bind, t.o.Config, 0, t.o.log())
	if err != nil {
		return err
	}
	return t.start()
}

// start lets wireguard-go send. If the TUN device has started it already, this only returns the result.
func (t *Tunnel) start() error {
	if err := t.engine.device.Up(); err != nil {
		return &path.Error{What: "tunnel " + t.o.Name, Why: "it cannot start", Err: err}
	}
	go func() {
		<-t.engine.device.Wait()
		close(t.done)
	}()
	return nil
}

// shake waits for the first handshake.
func (t *Tunnel) shake(ctx context.Context) error {
	t.engine.peer.SendKeepalive()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !t.engine.shaken() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.done:
			return t.ended()
		case <-tick.C:
		}
	}
	return nil
}

// Status returns the status of the session.
func (t *Tunnel) Status() split.Status { return t.bind.Status() }

// Net returns the network stack of a userspace tunnel, nil for others.
func (t *Tunnel) Net() *netstack.Net { return t.net }

// Guarded reports whether packets that belong in the tunnel are blocked outside it, also while it is not up.
func (t *Tunnel) Guarded() bool { return t.plan != nil && t.plan.guard != nil }

// KillSwitch reports whether all other traffic is blocked too.
func (t *Tunnel) KillSwitch() bool { return t.Guarded() && len(t.plan.guard.Within) == 0 }

// Beside returns the parts of AllowedIPs that stay outside a guarded tunnel, because this machine has narrower routes for them.
func (t *Tunnel) Beside() []netip.Prefix {
	if !t.Guarded() {
		return nil
	}
	return t.plan.guard.Beside
}

// MTU returns the tunnel's MTU in bytes.
func (t *Tunnel) MTU() int { return int(t.mtu.Load()) }

// fit sets the tunnel's MTU to what the paths carry now, and at most to the planned one. Some kinds know their size only once
// they are open. The network stack of a userspace tunnel keeps the MTU that it is made with.
func (t *Tunnel) fit() error {
	all, whole := t.session.Narrowest()
	mtu, warning, err := t.o.fitMTU(t.planned, all, whole)
	if err != nil || mtu == t.MTU() || t.net != nil {
		return err
	}
	if t.plan != nil {
		if err := setMTU(t.o.Name, mtu); err != nil {
			return &path.Error{What: "tunnel " + t.o.Name, Why: fmt.Sprintf("its MTU cannot be set to %d", mtu), Err: err}
		}
	}
	t.mtu.Store(int64(mtu))
	if warning == "" {
		warning = fmt.Sprintf("the MTU of the tunnel is %d again", mtu)
	}
	t.o.log().Warn(warning, "tunnel", t.o.Name)
	return nil
}

// fitEvery is the time between two looks at what the paths carry.
const fitEvery = time.Second

// Wait returns nil when ctx ends, or an error when the device is removed. After an error, do not call Close without a
// person's decision: the guard stays up until then.
func (t *Tunnel) Wait(ctx context.Context) error {
	tick := time.NewTicker(fitEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.done:
			return t.ended()
		case <-tick.C:
			if err := t.fit(); err != nil {
				t.o.log().Debug("the MTU stays", "tunnel", t.o.Name, "error", err) // the session warns of what it drops
			}
		}
	}
}

func (t *Tunnel) ended() error {
	t.control.close()
	e := &path.Error{What: "tunnel " + t.o.Name, Why: "its device was taken away", Hint: "start it again"}
	switch {
	case t.KillSwitch():
		e.Why += "; the kill switch stays up, so nothing leaves"
		e.Hint = fmt.Sprintf("start it again, or `heddle down %s` to lift the kill switch", t.o.Name)
	case t.Guarded():
		e.Why += "; its guard stays up, so nothing leaves to AllowedIPs"
		e.Hint = fmt.Sprintf("start it again, or `heddle down %s` to lift the guard", t.o.Name)
	}
	return e
}

// Close ends the tunnel and reverts all changes, the guard last. It may be called again.
func (t *Tunnel) Close() error { return t.close(false) }

func (t *Tunnel) close(keepGuard bool) error {
	if t.plan == nil {
		if t.engine != nil {
			t.engine.device.Close()
		}
		return nil
	}
	if t.journal == nil {
		return nil
	}
	if _, err := t.journal.Undo(keepGuard); err != nil {
		return &path.Error{What: "tunnel " + t.o.Name, Why: "not all changes could be taken back", Err: err, Hint: "heddle down " + t.o.Name}
	}
	return nil
}

// Clean reverts what a crash of the named tunnel left, and returns a line for each change. With keepGuard the guard stays for
// a [Tunnel] about to start, so that nothing leaves in between. The caller must hold the name's lock.
func Clean(dir, name string, keepGuard bool) ([]string, error) {
	j, err := openJournal(dir, name)
	if err != nil {
		return nil, err
	}
	left := j.Changes()
	if keepGuard {
		left = left[j.Guards():]
	}
	lines := lasting(left)
	if _, err := j.Undo(keepGuard); err != nil {
		return lines, &path.Error{What: "tunnel " + name, Why: "not all that a crash left could be taken back", Err: err, Hint: "heddle down " + name}
	}
	return lines, nil
}

// Left says what a tunnel called name changed on this machine that is still so, a line each, and whether it changed
// anything. Where no such tunnel runs, this is what a crash left.
func Left(dir, name string) (lines []string, changed bool, err error) {
	j, err := openJournal(dir, name)
	if err != nil || j == nil {
		return nil, false, err
	}
	changes := j.Changes()
	return lasting(changes), len(changes) > 0, nil
}
