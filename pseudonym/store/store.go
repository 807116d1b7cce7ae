// Package store registers pseudonyms: users ask for one, and tenants for the certificates of theirs.
package store

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"heddle/internal/errhint"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/database"
	"heddle/pseudonym/login"
	"heddle/pseudonym/mutual"
	"heddle/pseudonym/work"
)

// Options configure a store.
type Options struct {
	Zone     pseudonym.Zone
	Database *database.DB
	Issuer   *ca.Issuer
	Root     []byte        // certificate in DER, which users have to trust
	Life     time.Duration // of a pseudonym, until it is renewed
	Most     int           // pseudonyms that one person may have
	Work     int           // two to the power of it is what a proof of work costs, in hashes; 0 takes none
	WorkKey  []byte        // the same for all processes of the store
	Login    *login.Login  // nil if people need no account
	Note     func(Event)   // is told what happens; may be nil
	Log      *slog.Logger
}

// Store is safe for concurrent use.
type Store struct {
	o       Options
	limited bool // the root can vouch for names of the zone only
	now     func() time.Time
	gate    *work.Gate
	crowd   crowd
	counts  counts
}

// ownLife is that of pseudonyms of the store, at least: without one a person cannot renew the others.
const ownLife = 2 * 365 * 24 * time.Hour

// Defaults of [Options].
const (
	DefaultLife = 90 * 24 * time.Hour
	DefaultMost = 200
	DefaultWork = 20 // a tenth of a second for a program, and seconds for a phone
)

// keepRevoked is how many times the pseudonyms that a person may have can be in the database, with those that she revoked.
const keepRevoked = 4

// New returns a store.
func New(o Options) *Store {
	root, err := x509.ParseCertificate(o.Root)
	return &Store{o: o, limited: err == nil && ca.Limited(root, string(o.Zone)), now: time.Now, gate: work.NewGate(o.WorkKey)}
}

// Zone returns the cloud's zone.
func (s *Store) Zone() pseudonym.Zone { return s.o.Zone }

// life returns how long a pseudonym of a site lives until it is renewed.
func (s *Store) life(site string) time.Duration {
	if site == s.o.Zone.Store() {
		return max(s.o.Life, ownLife)
	}
	return s.o.Life
}

// prolongAfter is how much longer a pseudonym of the store has to live for [Store.Prolong].
const prolongAfter = 30 * 24 * time.Hour

// Prolong renews a pseudonym of the store whose holder came by it, once that gives her a good deal more time.
func (s *Store) Prolong(ctx context.Context, p database.Pseudonym) error {
	until := s.now().Add(s.life(p.Site))
	if last := s.o.Issuer.Until(); until.After(last) {
		until = last
	}
	if until.Sub(p.Expires) < prolongAfter {
		return nil
	}
	_, err := s.renew(ctx, p)
	return err
}

// Registration is what a user gets.
type Registration struct {
	Name    string    `json:"name"` // LABEL.ZONE
	Site    string    `json:"site"`
	URL     string    `json:"url"` // with the capability
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Root    []byte    `json:"root,omitempty"` // certificate in DER
}

// What users are told.
var (
	ErrNoTenant = errors.New("this cloud does not host it")
	ErrTooMany  = errors.New("one person may have no more")
	ErrReplayed = errors.New("somebody else has a pseudonym with this key")
)

// Register makes a pseudonym of a site for the holder of a key. It fails with [ErrNoTenant], [ErrTooMany] and
// [ErrReplayed]: a key of one person is no proof of another, so a request that somebody repeats gets him nothing.
func (s *Store) Register(ctx context.Context, site string, client ca.KeyID, owner pseudonym.Owner) (r Registration, err error) {
	if site, err = s.hosted(ctx, site); err != nil {
		return r, err
	}
	if err := s.quota(ctx, site, owner); err != nil {
		return r, err
	}
	if used, err := s.o.Database.Used(ctx, client, owner); err != nil {
		return r, err
	} else if used {
		s.note(RefusedReplay)
		return r, &errhint.Error{What: site, Hint: "make another key", Err: ErrReplayed}
	}
	p, err := s.make(site, client, owner)
	if err != nil {
		return r, err
	}
	if err := s.o.Database.Add(ctx, p); err != nil {
		return r, err
	}
	s.note(Registered)
	r = s.registration(&p)
	r.Root = s.o.Root
	return r, nil
}

// hosted normalises the name of a site of the cloud. It fails with [ErrNoTenant] for others.
func (s *Store) hosted(ctx context.Context, site string) (string, error) {
	site, err := pseudonym.ParseHost(site)
	if err == nil {
		_, err = s.o.Database.Tenant(ctx, site)
	}
	if errors.Is(err, pseudonym.ErrNone) {
		err = &errhint.Error{What: site, Hint: "check the name", Err: ErrNoTenant}
	}
	if told := (*errhint.Error)(nil); errors.As(err, &told) {
		s.note(RefusedSite)
	}
	return site, err
}

// quota fails with [ErrTooMany] if a person may have no more.
func (s *Store) quota(ctx context.Context, site string, owner pseudonym.Owner) error {
	own, all, err := s.o.Database.Count(ctx, owner)
	refuse := func(why, hint string) error {
		s.note(RefusedQuota)
		return &errhint.Error{What: site, Why: why, Hint: hint, Err: ErrTooMany}
	}
	switch {
	case err != nil:
		return err
	case own >= s.o.Most:
		return refuse(fmt.Sprintf("you have %d pseudonyms already", own), "revoke some that you do not use")
	case all >= keepRevoked*s.o.Most:
		return refuse(fmt.Sprintf("you revoked %d pseudonyms", all-own), "wait some weeks until the store forgets them")
	}
	return nil
}

// make draws a pseudonym with a key of its own, independent of all other keys of the site (requirement R3).
func (s *Store) make(site string, client ca.KeyID, owner pseudonym.Owner) (p database.Pseudonym, err error) {
	now := s.now().Truncate(time.Second)
	p = database.Pseudonym{Label: pseudonym.NewLabel(), Site: site, Owner: owner, Capability: pseudonym.NewCapability(), Client: client, Created: now}
	return s.certified(p, now.Add(s.life(site)))
}

// certified gives a pseudonym a key and a certificate.
func (s *Store) certified(p database.Pseudonym, until time.Time) (database.Pseudonym, error) {
	key, err := ca.NewKey()
	if err != nil {
		return p, err
	}
	cert, err := s.o.Issuer.Server(s.o.Zone.Name(p.Label), key.Public(), s.now().Truncate(time.Second), until)
	if err != nil {
		return p, err
	}
	p.Certificate, p.Expires = cert.Raw, cert.NotAfter
	p.Key, err = x509.MarshalPKCS8PrivateKey(key)
	return p, err
}

func (s *Store) registration(p *database.Pseudonym) Registration {
	name := s.o.Zone.Name(p.Label)
	u := url.URL{Scheme: "https", Host: name, Path: "/", RawQuery: url.Values{pseudonym.CapabilityKey: {p.Capability.String()}}.Encode()}
	return Registration{Name: name, Site: p.Site, URL: u.String(), Created: p.Created, Expires: p.Expires}
}

// Owned returns the pseudonyms of one person that are valid or can be renewed.
func (s *Store) Owned(ctx context.Context, owner pseudonym.Owner) ([]Registration, error) {
	found, err := s.o.Database.Owned(ctx, owner)
	all := []Registration{}
	for _, p := range found {
		if p.Revoked.IsZero() {
			all = append(all, s.registration(&p))
		}
	}
	return all, err
}

// own returns a pseudonym of a person, or [pseudonym.ErrNone], also if it is somebody else's.
func (s *Store) own(ctx context.Context, name string, owner pseudonym.Owner) (database.Pseudonym, error) {
	l, ok := s.o.Zone.Label(name)
	if !ok {
		return database.Pseudonym{}, pseudonym.ErrNone
	}
	p, err := s.o.Database.Get(ctx, l)
	if err == nil && p.Owner != owner {
		err = pseudonym.ErrNone
	}
	return p, err
}

// Revoke ends a pseudonym of a person for good.
func (s *Store) Revoke(ctx context.Context, name string, owner pseudonym.Owner) error {
	p, err := s.own(ctx, name, owner)
	if err != nil {
		return err
	}
	if err := s.o.Database.Revoke(ctx, p.Label, s.now()); err != nil {
		return err
	}
	s.note(Revoked)
	return nil
}

// Renew lets a pseudonym live on, with the same keys.
func (s *Store) Renew(ctx context.Context, name string, owner pseudonym.Owner) (r Registration, err error) {
	p, err := s.own(ctx, name, owner)
	if err != nil {
		return r, err
	}
	return s.renew(ctx, p)
}

func (s *Store) renew(ctx context.Context, p database.Pseudonym) (r Registration, err error) {
	old, err := x509.ParseCertificate(p.Certificate)
	if err != nil {
		return r, err
	}
	now := s.now().Truncate(time.Second)
	cert, err := s.o.Issuer.Server(s.o.Zone.Name(p.Label), old.PublicKey, now, now.Add(s.life(p.Site)))
	if err != nil {
		return r, err
	}
	p.Certificate, p.Expires = cert.Raw, cert.NotAfter
	if err := s.o.Database.Renew(ctx, p.Label, p.Certificate, p.Expires); err != nil {
		return r, err
	}
	s.note(Renewed)
	return s.registration(&p), nil
}

// Valid returns a pseudonym that may be used. It fails with [pseudonym.ErrNone].
func (s *Store) Valid(ctx context.Context, l pseudonym.Label) (database.Pseudonym, error) {
	p, err := s.o.Database.Get(ctx, l)
	if err == nil && !p.Valid(s.now()) {
		err = pseudonym.ErrNone
	}
	return p, err
}

// Entry returns a valid pseudonym as servers need it.
func (s *Store) Entry(ctx context.Context, l pseudonym.Label) (*mutual.Entry, error) {
	p, err := s.Valid(ctx, l)
	if err != nil {
		return nil, err
	}
	return s.entry(&p), nil
}

func (s *Store) entry(p *database.Pseudonym) *mutual.Entry {
	return &mutual.Entry{Label: p.Label, Site: p.Site, Capability: p.Capability, Client: p.Client, Expires: p.Expires, Left: int64(p.Expires.Sub(s.now()) / time.Second),
		Chain: append([][]byte{p.Certificate}, s.o.Issuer.Chain()...), Key: p.Key}
}

// StandIn returns the store's own pseudonym of a holder as servers need it, for the time in which the database does not answer: with another key and
// certificate for the same name, alike for all. Its holder gets in as far as [Store.Fail], and no further.
func (s *Store) StandIn(h database.Holder) (*mutual.Entry, error) {
	p, err := s.certified(database.Pseudonym{Label: h.Label, Site: s.o.Zone.Store(), Capability: h.Capability, Client: h.Client}, s.now().Add(s.life(s.o.Zone.Store())))
	if err != nil {
		return nil, err
	}
	return s.entry(&p), nil
}
