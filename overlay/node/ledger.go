package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/atomicfile"
	"heddle/overlay/client"
	"heddle/path"
)

// maxAccounts bounds the ledger. Only grants of a grantor have accounts.
const maxAccounts = 1 << 16

// account is a grant's usage at this node, and its open uses.
type account struct {
	grant  client.Grant
	used   atomic.Int64 // bytes, both ways
	leases atomic.Int32 // rules in the kernel, and those being made
	shown  time.Time    // when the grant was last shown; under the ledger's mutex

	mu   sync.Mutex
	open map[*use]struct{}
}

// use is one stream or flow by a grant.
type use struct {
	account *account
	ctx     context.Context // its cause says why the use ended
	end     context.CancelCauseFunc
}

// take reserves up to want of the remaining bytes and returns how many, or 0 if fewer than least remain.
func (a *account) take(want, least int) int {
	for {
		used := a.used.Load()
		given := int64(want)
		if a.grant.Bytes > 0 {
			given = min(given, max(a.grant.Bytes-used, 0))
		}
		if given < int64(least) {
			return 0
		}
		if given == 0 || a.used.CompareAndSwap(used, used+given) {
			return int(given)
		}
	}
}

// left reports whether the grant has bytes left.
func (a *account) left() bool { return a.grant.Bytes == 0 || a.used.Load() < a.grant.Bytes }

// begin opens a use that ends no later than the grant.
func (a *account) begin(ctx context.Context, now time.Time) *use {
	ended := &client.Refusal{Reason: client.ReasonExpired, Detail: a.grant.Until.Format(time.RFC3339)}
	// Use a duration, since the node's clock may be set meanwhile.
	ctx, stop := context.WithTimeoutCause(ctx, a.grant.Until.Sub(now), ended)
	u := &use{account: a}
	u.ctx, u.end = context.WithCancelCause(ctx)
	a.mu.Lock()
	a.open[u] = struct{}{}
	a.mu.Unlock()
	context.AfterFunc(u.ctx, func() { // at once if it has ended already
		stop()
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.open, u)
	})
	return u
}

func (a *account) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.open)
}

// cut ends all uses.
func (a *account) cut(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for u := range a.open {
		u.end(why)
	}
}

func (a *account) status() client.GrantStatus {
	g := a.grant
	return client.GrantStatus{ID: g.ID, Holder: g.Holder, From: g.From, Until: g.Until, Modes: g.Modes, To: g.To, Bytes: g.Bytes, Used: a.used.Load(), Flows: a.count()}
}

// digest names a grant in the ledger. A second grant with the id of another has an account of its own.
type digest string

func digestOf(s client.Signed) digest {
	sum := sha256.Sum256([]byte(s.String()))
	return digest(hex.EncodeToString(sum[:]))
}

// ledger has the accounts of all grants shown. With a file, their usage survives a restart.
type ledger struct {
	file string
	now  func() time.Time

	mu       sync.Mutex
	accounts map[digest]*account
	restored map[digest]entry // those not shown since the start
	saved    []entry
}

// entry is one line of the file.
type entry struct {
	Grant digest    `json:"grant"` // SHA-256 of the grant's text
	Until time.Time `json:"until"`
	Used  int64     `json:"used"`
}

func openLedger(file string, now func() time.Time) (*ledger, error) {
	l := &ledger{file: file, now: now, accounts: map[digest]*account{}, restored: map[digest]entry{}}
	if file == "" {
		return l, nil
	}
	text, err := os.ReadFile(file)
	var list []entry
	if err == nil {
		err = json.Unmarshal(text, &list)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return nil, &path.Error{What: "usage " + file, Why: "what each grant has used cannot be read", Err: err,
			Hint: "mend it or move it away; then all may use their bytes anew"}
	}
	for _, e := range list {
		l.restored[e.Grant] = e
	}
	return l, nil
}

// account returns the account of a verified grant, or nil if there are too many.
func (l *ledger) account(s client.Signed) *account {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := digestOf(s)
	if a := l.accounts[key]; a != nil {
		a.shown = l.now()
		return a
	}
	if len(l.accounts) >= maxAccounts {
		if l.sweep(); len(l.accounts) >= maxAccounts {
			return nil
		}
	}
	a := &account{grant: s.Grant, open: map[*use]struct{}{}, shown: l.now()}
	a.used.Store(l.restored[key].Used)
	delete(l.restored, key)
	l.accounts[key] = a
	return a
}

// unusedFor is how long an idle account is kept: its holder may have shown the grant to begin soon.
const unusedFor = time.Minute

// sweep drops ended accounts. l.mu is held.
func (l *ledger) sweep() {
	now := l.now()
	for key, a := range l.accounts {
		if a.count() == 0 && a.leases.Load() == 0 && now.Sub(a.shown) > unusedFor && (!now.Before(a.grant.Until) || a.used.Load() == 0) {
			delete(l.accounts, key)
		}
	}
	for key, e := range l.restored {
		if !now.Before(e.Until) {
			delete(l.restored, key)
		}
	}
}

// all returns the accounts, sorted by id.
func (l *ledger) all() []*account {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*account, 0, len(l.accounts))
	for _, a := range l.accounts {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *account) int { return cmp.Compare(a.grant.ID, b.grant.ID) })
	return list
}

// cut ends all uses of grants that ended selects.
func (l *ledger) cut(ended func(client.Grant) bool, why error) {
	for _, a := range l.all() {
		if ended(a.grant) {
			a.cut(why)
		}
	}
}

// keep writes the file if something has changed.
func (l *ledger) keep() error {
	if l.file == "" {
		return nil
	}
	l.mu.Lock()
	l.sweep()
	list := make([]entry, 0, len(l.accounts)+len(l.restored))
	for _, e := range l.restored {
		list = append(list, e)
	}
	for key, a := range l.accounts {
		if used := a.used.Load(); used > 0 {
			list = append(list, entry{Grant: key, Until: a.grant.Until, Used: used})
		}
	}
	l.mu.Unlock()
	slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(a.Grant, b.Grant) })
	if slices.Equal(list, l.saved) {
		return nil
	}
	text, err := json.MarshalIndent(list, "", " ")
	if err == nil {
		err = atomicfile.WritePrivate(l.file, append(text, '\n'))
	}
	if err == nil {
		l.saved = list
	}
	return err
}
