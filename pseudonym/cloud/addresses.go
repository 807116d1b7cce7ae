package cloud

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/pseudonym"
	"heddle/pseudonym/address"
	"heddle/pseudonym/database"
	"heddle/pseudonym/gateway"
	"heddle/pseudonym/gateway/v6switch"
)

// Times of the keys of pseudo-addresses. An address is good for [AddressLife] at least, so a connection lasts as long.
const (
	addressPeriod = 24 * time.Hour // in which a key is the newest
	addressLead   = time.Hour      // from the making of a key until it is used: all switches have it by then
	addressStale  = 2              // periods without a new key after which no switch is there
	// AddressLife is how long a pseudo-address leads to its tenant, at least.
	AddressLife = (address.MaxKeys-1)*addressPeriod - addressLead
)

// gatewayNumber is the number of the gateway in pseudo-addresses. Names that lead there, or nowhere, have it.
const gatewayNumber = 0

// questionsAtOnce bounds what a nameserver asks the database at once: anybody can ask it for names that nobody has.
const questionsAtOnce = 64

// addresses knows the keys of pseudo-addresses, and the numbers of tenants. Switches make both, and share them by the database.
type addresses struct {
	o     Options
	seal  *database.Seal
	leads *v6switch.Switch // takes what was learnt; nil in a process without a switch
	makes bool             // keys and numbers, as processes with a switch do

	ring    atomic.Pointer[address.Ring]
	newest  atomic.Int64                      // number of the newest key
	begun   atomic.Pointer[time.Time]         // since when there was always a key
	numbers atomic.Pointer[map[string]uint16] // of sites with an address of IPv6
	db      atomic.Pointer[database.DB]       // while it is open

	router *router // of names, for the nameserver
	places chan struct{}
	known  sync.Once
	once   sync.Once
	read   chan struct{} // closed once all was read
}

// addresses reports whether the cloud has pseudo-addresses.
func (o Options) addresses() bool {
	return o.Prefix.IsValid() && (o.Mode == gateway.Auto || o.Mode == gateway.V6 || o.Mode == "")
}

func newAddresses(o Options) (*addresses, error) {
	seal, err := readSealOf(o.Dir, AddressKey)
	if err != nil {
		return nil, &errhint.Error{What: "the key of pseudo-addresses", Why: "it cannot be read", Hint: "copy " + AddressKey + " from another machine of the cloud; init --renew makes the first one", Err: err}
	}
	a := &addresses{o: o, seal: seal, places: make(chan struct{}, questionsAtOnce), read: make(chan struct{})}
	if a.router, err = newRouter(a.ask, o.Log); err == nil {
		err = a.router.alike()
	}
	return a, err
}

// keys reads the keys. A switch makes the next one when it is time, and deletes those that are too old, and those of a clock that was ahead.
func (a *addresses) keys(ctx context.Context, db *database.DB, now time.Time) ([]database.AddressKey, error) {
	rows, err := db.AddressKeys(ctx, a.seal)
	due := now.Add(addressLead).Unix() / int64(addressPeriod/time.Second)
	if err != nil || !a.makes {
		return rows, err
	}
	if len(rows) > 0 && rows[0].Number > due+1 {
		a.o.Log.Warn("a key of pseudo-addresses is of the future; it is deleted", "made", rows[0].Created)
		if err = db.DropAddressKeys(ctx, rows[len(rows)-1].Number, due); err == nil {
			rows, err = db.AddressKeys(ctx, a.seal)
		}
	}
	if err == nil && (len(rows) == 0 || rows[0].Number < due) {
		err = db.AddAddressKey(ctx, a.seal, database.AddressKey{Number: due, Key: address.NewKey(), Created: now})
		if err == nil || errors.Is(err, database.ErrExists) {
			rows, err = db.AddressKeys(ctx, a.seal)
		}
	}
	if err == nil && len(rows) > address.MaxKeys {
		err = db.DropAddressKeys(ctx, rows[address.MaxKeys-1].Number, rows[0].Number)
	}
	return rows, err
}

// ringOf returns the ring of keys, of which there is at least one.
func ringOf(rows []database.AddressKey) (*address.Ring, error) {
	var epochs []address.Epoch
	for i, row := range rows[:min(len(rows), address.MaxKeys)] {
		from := time.Unix(row.Number*int64(addressPeriod/time.Second), 0)
		if row.Created.After(from) { // no switch ran when it was due
			from = row.Created.Add(helloAfter)
		}
		if i > 0 && !from.Before(epochs[i-1].From) {
			from = epochs[i-1].From.Add(-1)
		}
		epochs = append(epochs, address.Epoch{Key: row.Key, From: from})
	}
	return address.NewRing(epochs...)
}

// begunAt returns when the first key was made that others followed before it was stale.
func begunAt(rows []database.AddressKey) *time.Time {
	i := 0
	for i+1 < len(rows) && rows[i].Number-rows[i+1].Number <= addressStale {
		i++
	}
	return &rows[i].Created
}

// look is take within the time for an answer of the database.
func (a *addresses) look(ctx context.Context, db *database.DB, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, helloFor)
	defer cancel()
	return a.take(ctx, db, now)
}

// take takes keys and tenants of the database, and tells the switch.
func (a *addresses) take(ctx context.Context, db *database.DB, now time.Time) error {
	rows, err := a.keys(ctx, db, now)
	if err != nil {
		return err
	}
	numbers, places, err := a.tenants(ctx, db)
	if err != nil {
		return err
	}
	a.numbers.Store(&numbers)
	a.db.Store(db)
	if len(rows) > 0 {
		ring, err := ringOf(rows)
		if err == nil && a.leads != nil {
			err = errors.Join(a.leads.SetTenants(places), a.leads.SetKeys(ring))
		}
		if err != nil {
			return err
		}
		a.begun.Store(begunAt(rows))
		a.ring.Store(ring)
		a.newest.Store(rows[0].Number)
	}
	a.once.Do(func() { close(a.read) })
	return nil
}

// tenants returns the numbers of sites with an address of IPv6, and where they are. A switch gives numbers to new ones.
func (a *addresses) tenants(ctx context.Context, db *database.DB) (map[string]uint16, map[uint16]netip.Addr, error) {
	all, err := db.Tenants(ctx)
	if err != nil {
		return nil, nil, err
	}
	given, err := db.Numbers(ctx)
	if err != nil {
		return nil, nil, err
	}
	numbers, places := map[string]uint16{}, map[uint16]netip.Addr{gatewayNumber: v6switch.Own}
	for _, t := range all {
		at, ok := gateway.V6Address(t.Addresses)
		if !ok {
			continue
		}
		n, ok := given[t.Site]
		if !ok && a.makes {
			if n, err = number(ctx, db, t.Site); err != nil {
				return nil, nil, err
			}
			ok = n != gatewayNumber
		}
		if ok {
			numbers[t.Site], places[n] = n, at
		}
	}
	return numbers, places, nil
}

// number gives a site a random number: that of a site that was removed seldom comes again while its addresses are known. It returns that of
// the gateway if there are too many sites, or another switch was faster: that one's change has it look again.
func number(ctx context.Context, db *database.DB, site string) (uint16, error) {
	for range 64 {
		var b [2]byte
		_, _ = rand.Read(b[:]) // it never fails
		n := binary.BigEndian.Uint16(b[:])
		if n == gatewayNumber {
			continue
		}
		if err := db.AddNumber(ctx, site, n); !errors.Is(err, database.ErrExists) {
			return n, err
		}
	}
	return gatewayNumber, nil
}

// keep knows all of it until ctx ends.
func (a *addresses) keep(ctx context.Context, open opener) {
	a.known.Do(func() {
		go kept{"pseudo-addresses", a.look, func(ctx context.Context, db *database.DB, c database.Change) bool {
			a.router.follow(ctx, c.Label, db.Tenants)
			return c.Label == "" || c.Label == pseudonym.Sites || c.Label == pseudonym.Addresses
		}, a.o.Log}.keep(ctx, open)
	})
}

// published reports whether names have pseudo-addresses: a switch has made a key, and has not been away for long.
func (a *addresses) published(now time.Time) bool {
	return a.ring.Load() != nil && a.newest.Load()+addressStale >= now.Unix()/int64(addressPeriod/time.Second)
}

// publishing reports whether the gateway opens encrypted hellos for all names, and whether these have pseudo-addresses. A site that a switch leads
// packets to has no key for such hellos, and refuses them, so it is one or the other. hellos is since when there were keys for them in DNS: in
// mode auto names lead to the gateway until nobody has such a record any more. A gateway of mode v6 takes no connections of sites.
func (a *addresses) publishing(now, hellos time.Time) (opens, fresh bool) {
	if fresh = a.published(now); a.o.Mode == gateway.V6 {
		return false, fresh
	}
	if !fresh {
		return true, false
	}
	begun := *a.begun.Load()
	return false, hellos.IsZero() || !hellos.Add(helloAfter).Before(begun) || !now.Before(begun.Add(helloKeep))
}

// fresh returns an address for one answer about a name, such as [zone.Options] want. Names that nobody has, those of sites that the switch
// does not lead to, and all while the database does not answer lead to the gateway.
func (a *addresses) fresh(name string) (netip.Addr, error) {
	ring := a.ring.Load()
	if ring == nil {
		return netip.Addr{}, errors.New("there is no key of pseudo-addresses")
	}
	return ring.Seal(a.o.Prefix, a.numberOf(name), name, time.Now())
}

func (a *addresses) numberOf(name string) uint16 {
	l, ok := a.o.Zone.Label(name)
	if !ok {
		return gatewayNumber
	}
	ctx, cancel := context.WithTimeout(context.Background(), askFor)
	defer cancel()
	found, err := a.router.find(ctx, l)
	if err != nil {
		return gatewayNumber
	}
	return (*a.numbers.Load())[found.site]
}

// ask asks the database for the tenant of a name, if not too many ask.
func (a *addresses) ask(ctx context.Context, l pseudonym.Label, now time.Time) (r database.Route, err error) {
	db := a.db.Load()
	select {
	case a.places <- struct{}{}:
		defer func() { <-a.places }()
	default:
		return r, errors.New("too many ask for names")
	}
	if db == nil {
		return r, errors.New("there is no database")
	}
	return db.Route(ctx, l, now)
}

// openAddresses begins what a process does with pseudo-addresses.
func (c *Cloud) openAddresses(ctx context.Context) (err error) {
	if !c.o.addresses() || !c.parts.Switch && !c.parts.DNS {
		return nil
	}
	if c.addresses, err = newAddresses(c.o); err != nil || !c.parts.Switch || c.o.Device == "" { // the switch may be on another machine
		return err
	}
	if err = c.addresses.lead(ctx, c.db); err != nil && c.o.Mode != gateway.V6 {
		c.o.Log.Warn("packets to pseudo-addresses are not led to tenants", "error", err, "hint", errhint.Of(err))
		return nil
	}
	return err
}

// lead begins to lead. There is a key only once there is a switch, so that nobody gets addresses that lead nowhere.
func (a *addresses) lead(ctx context.Context, db *database.DB) error {
	s, err := v6switch.New(v6switch.Options{Device: a.o.Device, Prefix: a.o.Prefix, Ports: a.o.Ports})
	if err != nil {
		return err
	}
	if err = a.handTo(ctx, db, s); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

func (a *addresses) handTo(ctx context.Context, db *database.DB, s *v6switch.Switch) error {
	// The program that an earlier process left leads on until this one knows as much.
	rows, err := db.AddressKeys(ctx, a.seal)
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		_, places, err := a.tenants(ctx, db)
		if err != nil {
			return err
		}
		ring, err := ringOf(rows)
		if err = errors.Join(err, s.SetTenants(places)); err == nil {
			err = s.SetKeys(ring)
		}
		if err != nil {
			return err
		}
	}
	if err := s.Attach(); err != nil {
		return err
	}
	a.leads, a.makes = s, true
	return a.look(ctx, db, time.Now())
}

// Leads reports whether this process has a switch of pseudo-addresses.
func (c *Cloud) Leads() bool { return c.addresses != nil && c.addresses.leads != nil }

// ServeSwitch follows changes of tenants, keys and routes until ctx ends.
func (c *Cloud) ServeSwitch(ctx context.Context) error {
	c.addresses.keep(ctx, c.open)
	last := ""
	for netutil.Sleep(ctx, helloTick) == nil {
		err := c.addresses.leads.Follow()
		if err != nil && err.Error() != last { // once, and not each second
			last = err.Error()
			c.o.Log.Warn("the switch does not follow the routes of this machine", "error", err)
		}
	}
	return nil
}

// CheckAddress returns a pseudo-address of a site, for commands. It fails with [pseudonym.ErrNone] if it has none.
func CheckAddress(ctx context.Context, o Options, db *database.DB, site string) (netip.Addr, error) {
	a, err := newAddresses(o)
	if err != nil {
		return netip.Addr{}, err
	}
	if err := a.look(ctx, db, time.Now()); err != nil {
		return netip.Addr{}, err
	}
	n, ok := (*a.numbers.Load())[site]
	if !ok || !a.published(time.Now()) {
		return netip.Addr{}, pseudonym.ErrNone
	}
	return a.ring.Load().Seal(o.Prefix, n, site, time.Now())
}
