package cloud

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/errhint"
	"heddle/pseudonym"
	"heddle/pseudonym/database"
	"heddle/pseudonym/ech"
	"heddle/pseudonym/zone"
)

// Times of the keys that open encrypted ClientHellos. A network that records hellos can read them if it gets the key of that time later.
const (
	helloPeriod = 24 * time.Hour
	helloAfter  = 10 * time.Second // from the making of a key until it is in DNS: all gateways have it by then
	helloKeep   = 4 * zone.TTL     // from then on the key before it is good, for resolvers and browsers that have the old record
	helloRead   = 30 * time.Second // from one look into the database to the next, if no change is told
	helloTick   = time.Second      // from one look at the clock to the next
	helloFor    = 5 * time.Second  // for an answer of the database
	helloSkew   = time.Hour        // by which clocks of gateways may differ
)

// hellos knows the keys of a cloud for encrypted ClientHellos. Gateways make them, and share them by the database. Nobody else can read
// them: the nameserver and the store need their public configurations only.
type hellos struct {
	zone pseudonym.Zone
	seal *database.Seal // of gateways; nil in other processes
	log  *slog.Logger

	all  atomic.Pointer[[]database.Hello] // the newest first
	keys atomic.Pointer[[]*ech.Key]       // of gateways

	once sync.Once
	read chan struct{} // closed once all was read
}

func newHellos(z pseudonym.Zone, seal *database.Seal, log *slog.Logger) *hellos {
	return &hellos{zone: z, seal: seal, log: log, read: make(chan struct{})}
}

// due is the number of the key that should be the newest.
func due(now time.Time) int64 { return now.Unix() / int64(helloPeriod/time.Second) }

// look takes the keys of the database. A gateway makes the next one when it is time, and deletes those that are too old, and those of a
// clock that was ahead: else no key would be in DNS, and no new one be made, until that time comes.
func (h *hellos) look(ctx context.Context, db *database.DB, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, helloFor)
	defer cancel()
	rows, err := db.Hellos(ctx, h.seal)
	if ahead := now.Add(helloSkew); err == nil && h.seal != nil && len(rows) > 0 && rows[0].Created.After(ahead) {
		h.log.Warn("a key for encrypted hellos is of the future; it is deleted", "made", rows[0].Created)
		if err = db.DropHellosAfter(ctx, ahead); err == nil {
			rows, err = db.Hellos(ctx, h.seal)
		}
	}
	if err == nil && h.seal != nil && (len(rows) == 0 || rows[0].Number < due(now)) {
		if err = h.make(ctx, db, now); err == nil {
			rows, err = db.Hellos(ctx, h.seal)
		}
	}
	if err != nil {
		return err
	}
	h.all.Store(&rows)
	h.once.Do(func() { close(h.read) })
	if h.seal == nil {
		return nil
	}
	var keys []*ech.Key
	for i, row := range rows {
		if i > 0 && rows[i-1].Created.Add(helloAfter+helloKeep).Before(now) {
			err = db.DropHellos(ctx, rows[i-1].Number)
			break
		}
		key, err := ech.ParseKey(row.Config, row.Private)
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	h.keys.Store(&keys)
	return err
}

// begin has a gateway ready before it takes connections. It refuses a gateway that cannot open what other gateways can: its clients would
// be told to use a key that it has not.
func (h *hellos) begin(ctx context.Context, db *database.DB, now time.Time) error {
	err := h.look(ctx, db, now)
	if errors.Is(err, database.ErrSeal) || err == nil && h.seal == nil && len(*h.all.Load()) > 0 {
		return &errhint.Error{What: "the keys for encrypted hellos", Why: "this gateway cannot read them", Hint: "copy " + GatewayKey + " from another gateway", Err: err}
	}
	return err
}

// make adds a key, unless another gateway does.
func (h *hellos) make(ctx context.Context, db *database.DB, now time.Time) error {
	number := due(now)
	key, err := ech.NewKey(uint8(number), h.zone.Store(), len(h.zone.Name(pseudonym.NewLabel())))
	if err != nil {
		return err
	}
	private, err := key.Private()
	if err != nil {
		return err
	}
	err = db.AddHello(ctx, h.seal, database.Hello{Number: number, Config: key.Config(), Private: private, Created: now})
	if errors.Is(err, database.ErrExists) {
		return nil
	}
	return err
}

// accepted returns the keys that open hellos.
func (h *hellos) accepted() []*ech.Key {
	if keys := h.keys.Load(); keys != nil {
		return *keys
	}
	return nil
}

// published returns the configuration that clients shall use, or none.
func (h *hellos) published(now time.Time) []byte {
	if all := h.all.Load(); all != nil {
		for _, one := range *all {
			if !one.Created.Add(helloAfter).After(now) {
				return ech.List(one.Config)
			}
		}
	}
	return nil
}

// since returns when the oldest key was made that is known, or the zero time.
func (h *hellos) since() time.Time {
	if all := h.all.Load(); all != nil && len(*all) > 0 {
		return (*all)[len(*all)-1].Created
	}
	return time.Time{}
}

// retry tells a client whose key is too old the one to use.
func (h *hellos) retry(*tls.ClientHelloInfo) ([]tls.EncryptedClientHelloKey, error) {
	list := h.published(time.Now())
	if list == nil {
		return nil, nil
	}
	return []tls.EncryptedClientHelloKey{{Config: list[2:], SendAsRetry: true}}, nil
}

// keep knows the keys until ctx ends.
func (h *hellos) keep(ctx context.Context, open opener) {
	kept{"keys for encrypted hellos", h.look, func(_ context.Context, _ *database.DB, c database.Change) bool {
		return c.Label == "" || c.Label == pseudonym.Hellos
	}, h.log}.keep(ctx, open)
}
