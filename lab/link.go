package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	inside "heddle/internal/netns"
)

// Link is one link of a world that is up.
type Link struct {
	spec  LinkSpec
	in    *Instance
	index int // in the engine; -1 for veth, or if another process owns the world
	cut   bool
}

// ErrNotEmulated is returned for an operation that needs a link emulated by this process.
var ErrNotEmulated = errors.New("the link is not emulated by this process")

// Unplug sets both devices down, like pulling a cable: their routes go.
func (l *Link) Unplug() error {
	return l.bothEnds(func(h *Host, e End) error { return h.setUp(e.Device, false) })
}

// up sets both devices up, with their addresses and routes.
func (l *Link) up() error {
	if err := l.configure(); err != nil {
		return err
	}
	err := l.bothEnds(func(h *Host, e End) error {
		return h.route(func(r Route) bool { return r.Device == e.Device })
	})
	return errors.Join(err, l.awaitCarrier())
}

// awaitCarrier waits until a veth link delivers: a device drops packets until the kernel notices that its peer is up, too.
func (l *Link) awaitCarrier() error {
	if l.spec.Emulated() {
		return nil
	}
	return l.bothEnds(func(h *Host, e End) error {
		if err := inside.AwaitCarrier(h.ns.link, e.Device); err != nil {
			return fmt.Errorf("host %s: %w", h.spec.Name, err)
		}
		return nil
	})
}

// Restore sets both devices up again, with their addresses and routes, and ends a cut.
func (l *Link) Restore() error {
	if l.cut {
		if err := l.order(func() { l.cut = false }); err != nil {
			return err
		}
	}
	return l.up()
}

// Cut drops every packet silently: both devices stay up, as when a network further away fails.
func (l *Link) Cut() error { return l.order(func() { l.cut = true }) }

// Reshape changes the shape of both directions. Packets in flight keep their due time.
func (l *Link) Reshape(change func(*Shape)) error {
	ab, ba := l.spec.AtoB, l.spec.BtoA
	change(&ab)
	change(&ba)
	if err := errors.Join(ab.Validate(), ba.Validate()); err != nil {
		return err
	}
	return l.order(func() { l.spec.AtoB, l.spec.BtoA = ab, ba })
}

// order applies f to the link and sends the result to the emulator.
func (l *Link) order(f func()) error {
	if l.index < 0 {
		return fmt.Errorf("link %s: %w", l.spec.Name, ErrNotEmulated)
	}
	f()
	_, err := l.in.engine.ask(order{Link: l.index, AB: l.spec.AtoB, BA: l.spec.BtoA, Cut: l.cut})
	return err
}

// Readdress replaces the addresses of one host's device, as DHCP or roaming does. It sets the routes again, which the
// kernel removes with an address.
func (l *Link) Readdress(host string, addrs ...netip.Prefix) error {
	for _, end := range []*End{&l.spec.A, &l.spec.B} {
		if end.Host == host {
			end.Addrs = addrs
			return l.up()
		}
	}
	return fmt.Errorf("link %s: host %s is at neither end", l.spec.Name, host)
}

// Status returns what an emulated link of this process carried, and its lateness.
func (l *Link) Status() (LinkStatus, error) {
	if l.index < 0 {
		return LinkStatus{}, ErrNotEmulated
	}
	a, err := l.in.engine.ask(order{Link: -1})
	if err != nil {
		return LinkStatus{}, err
	}
	return a.Links[l.index], nil
}

func (l *Link) bothEnds(f func(*Host, End) error) error {
	for _, e := range []End{l.spec.A, l.spec.B} {
		if err := f(l.in.Host(e.Host), e); err != nil {
			return err
		}
	}
	return nil
}

// createVeth makes the devices of a link that is not emulated.
func (l *Link) createVeth() error {
	a, b := l.in.Host(l.spec.A.Host), l.in.Host(l.spec.B.Host)
	return a.ns.link.LinkAdd(&netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: l.spec.A.Device, MTU: l.spec.mtu(), TxQLen: 1000},
		PeerName:      l.spec.B.Device,
		PeerMTU:       uint32(l.spec.mtu()),
		PeerTxQLen:    1000,
		PeerNamespace: netlink.NsFd(b.ns.handle),
	})
}

// createTUN makes the devices of an emulated link. They last until their files are closed.
func (l *Link) createTUN() (files []*os.File, err error) {
	for _, e := range []End{l.spec.A, l.spec.B} {
		err := l.in.Host(e.Host).Do(func() error {
			f, err := openTUN(e.Device)
			if err == nil {
				files = append(files, f)
			}
			return err
		})
		if err != nil {
			return files, err
		}
	}
	return files, nil
}

// configure sets MTU and addresses and brings both ends up. It may be called again.
func (l *Link) configure() error {
	return l.bothEnds(func(h *Host, e End) error { return h.Configure(e.Device, l.spec.mtu(), e.Addrs, nil) })
}
