package cloud

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/netutil"
	"heddle/pseudonym/database"
	"heddle/pseudonym/zone"
)

// newZone returns the nameserver of a cloud. It needs the zone's key alone, if there is one.
func newZone(o Options, n *zone.Counter, fresh func(string) (netip.Addr, error)) (*zone.Server, error) {
	key, err := readZoneKey(o.Dir)
	if err != nil {
		return nil, err
	}
	return zone.New(zone.Options{Zone: o.Zone, Gateways: o.Gateways, Own: []string{StoreLabel, LinkerLabel, TenantsLabel}, Key: key, Fresh: fresh, Counter: n, Log: o.Log})
}

// DS returns what the parent zone has to have. It is empty for a zone that is not signed.
func DS(o Options) (string, error) {
	s, err := newZone(o, nil, nil)
	if err != nil {
		return "", err
	}
	return s.DS()
}

// Zone returns the nameserver of a cloud with the records of now, for commands.
func Zone(ctx context.Context, o Options) (*zone.Server, error) {
	s, err := newZone(o, nil, nil)
	if err != nil {
		return nil, err
	}
	db, err := OpenDatabase(ctx, o)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	h := newHellos(o.Zone, nil, o.Log)
	if err := h.look(ctx, db, time.Now()); err != nil {
		return nil, err
	}
	list := h.published(time.Now())
	return s, s.Publish(list, list)
}

// ServeZone answers questions about the zone until ctx ends.
func (c *Cloud) ServeZone(ctx context.Context, packets net.PacketConn, streams net.Listener) error {
	var fresh func(string) (netip.Addr, error)
	if c.addresses != nil {
		fresh = c.addresses.fresh
	}
	s, err := newZone(c.o, &c.names, fresh)
	if err != nil {
		return err
	}
	c.keepHellos(ctx)
	if c.addresses != nil {
		c.addresses.keep(ctx, c.open)
		select { // else resolvers would keep addresses of the gateways
		case <-c.addresses.read:
		case <-time.After(helloFor):
			c.o.Log.Warn("names lead to the gateways until the database answers")
		case <-ctx.Done():
		}
	}
	plain := sync.OnceFunc(func() {
		c.o.Log.Info("clients cannot encrypt the names of sites while these have pseudo-addresses", "hint", "without v6-prefix they can")
	})
	publish := func() {
		now := time.Now()
		list := c.hellos.published(now)
		wild, fresh := list, false
		if c.addresses != nil {
			var opens bool
			if opens, fresh = c.addresses.publishing(now, c.hellos.since()); !opens {
				wild = nil
				plain()
			}
		}
		if err := errors.Join(s.Publish(list, wild), s.PublishFresh(fresh)); err != nil {
			c.o.Log.Error("the zone cannot be signed", "error", err)
		}
	}
	select { // else resolvers would keep records without the key
	case <-c.hellos.read:
	case <-time.After(helloFor):
		c.o.Log.Warn("HTTPS records have no key for encrypted hellos until the database answers")
	case <-ctx.Done():
	}
	publish()
	go func() {
		for netutil.Sleep(ctx, helloTick) == nil {
			publish()
		}
	}()
	return s.Serve(ctx, packets, streams)
}

// Times of [UpdateZone].
const (
	updateEvery = time.Hour        // even if nothing changed: somebody may have changed the other nameserver
	updateRetry = 10 * time.Second // after a failure
)

// UpdateZone gives the records of a cloud to another nameserver with send: at once, when they change, and now and then, until ctx ends. It
// fails if the first time does.
func UpdateZone(ctx context.Context, o Options, send func(context.Context, *zone.Server) error) error {
	s, err := newZone(o, nil, nil)
	if err != nil {
		return err
	}
	db, err := OpenDatabase(ctx, o)
	if err != nil {
		return err
	}
	defer db.Close()
	h := newHellos(o.Zone, nil, o.Log)
	if err := h.look(ctx, db, time.Now()); err != nil {
		return err
	}
	following, stop := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		h.keep(following, func(context.Context) (*database.DB, func(), error) { return db, func() {}, nil })
	}()
	defer func() { stop(); <-kept }()

	var sent []byte
	var next time.Time
	for first := true; ctx.Err() == nil; first = false {
		now := time.Now()
		list := h.published(now)
		if bytes.Equal(list, sent) && now.Before(next) {
			_ = netutil.Sleep(ctx, helloTick)
			continue
		}
		if err = s.Publish(list, list); err == nil {
			err = send(ctx, s)
		}
		switch {
		case err == nil:
			sent, next = list, now.Add(updateEvery)
		case first:
			return err
		case ctx.Err() == nil:
			o.Log.Warn("the other nameserver keeps the records of before", "error", err)
			_ = netutil.Sleep(ctx, updateRetry)
		}
	}
	return nil
}
