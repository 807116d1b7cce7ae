package cloud

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/database"
	"heddle/pseudonym/mutual"
)

// A process knows the pseudonyms of the store that were valid when the database answered last.
func TestOwn(t *testing.T) {
	ctx, log, now := t.Context(), slog.New(slog.DiscardHandler), time.Now()
	seal, err := database.NewSeal(make([]byte, database.SealKeySize))
	if err != nil {
		t.Fatal(err)
	}
	db, err := database.Open(ctx, filepath.Join(t.TempDir(), "pseudonyms.db"), seal, log)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i, site := range []string{testZone.Store(), benchSite} {
		if err := db.AddTenant(ctx, database.Tenant{Site: site, Client: [32]byte{byte(i)}, Created: now}); err != nil {
			t.Fatal(err)
		}
	}
	made := func(site string, at time.Time) pseudonym.Label {
		p := database.Pseudonym{Label: pseudonym.NewLabel(), Site: site, Certificate: []byte{1}, Key: []byte{1}, Created: at, Expires: now.Add(day)}
		if err := db.Add(ctx, p); err != nil {
			t.Fatal(err)
		}
		return p.Label
	}
	add := func(site string) pseudonym.Label { return made(site, now) }
	revoke := func(l pseudonym.Label) {
		if err := db.Revoke(ctx, l, now); err != nil {
			t.Fatal(err)
		}
	}
	first, early, old, other := add(testZone.Store()), add(testZone.Store()), made(testZone.Store(), now.Add(-day)), add(benchSite)
	o := newOwn(ctx, testZone.Store(), db, log)
	knows := func(when string, want bool, labels ...pseudonym.Label) {
		t.Helper()
		for i, l := range labels {
			if h, ok := o.find(l); ok != want || ok && h.Label != l {
				t.Errorf("%s it knows %d: %v", when, i, ok)
			}
		}
	}
	look := func(at time.Time) {
		t.Helper()
		if err := o.look(ctx, db, at); err != nil {
			t.Fatal(err)
		}
	}
	knows("at the start", true, first, early, old)
	knows("at the start", false, other, pseudonym.NewLabel())
	revoke(early) // before it hears of changes
	look(now)
	knows("once it hears of changes", false, early)
	second, third, stays := add(testZone.Store()), add(testZone.Store()), add(testZone.Store())
	look(now.Add(time.Minute))
	knows("later", true, first, second, third, stays, old)

	revoke(first)
	told := func(l pseudonym.Label) {
		if o.told(ctx, db, database.Change{Label: l}) {
			t.Errorf("it reads at once after %q", l)
		}
	}
	told(first)
	knows("after a revocation", false, first)
	look(now)
	knows("after a revocation and a look", false, first)

	revoke(second) // the change is lost
	told("")
	knows("while the database is gone", true, second, third)
	look(now)
	knows("after a lost change", false, second)

	revoke(third) // a look fails meanwhile
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := o.look(ended, db, now); err == nil {
		t.Error("it succeeds")
	}
	look(now)
	knows("after a look that failed", false, third)

	told(old) // it was renewed
	look(now.Add(wholeOwn - time.Second))
	knows("after a renewal", true, stays)
	knows("after a renewal", false, old)
	look(now.Add(wholeOwn))
	knows("an hour later", true, old)
}

// A server that knows a pseudonym lets nobody into the store. The database does, and else people learn why they cannot come in.
func TestDatabaseAloneLetsIn(t *testing.T) {
	b := newBroom(t)
	r, err := b.Cloud.store.Register(t.Context(), testZone.Store(), ca.KeyID{1}, pseudonym.NewOwner())
	if err != nil {
		t.Fatal(err)
	}
	l, _ := testZone.Label(r.Name)
	e, err := b.Cloud.store.Entry(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	names, err := mutual.NewServer(testZone, fixed{e}, 10)
	if err != nil {
		t.Fatal(err)
	}
	entrances := b.entrances(names)
	for _, c := range []struct {
		name   string
		before func() error
		status int
		says   string
	}{
		{"valid", func() error { return nil }, http.StatusOK, r.Name},
		{"revoked", func() error { return b.db.Revoke(t.Context(), l, time.Now()) }, http.StatusNotFound, `"error"`},
		{"without the database", b.db.Close, http.StatusServiceUnavailable, "its database does not answer"},
	} {
		if err := c.before(); err != nil {
			t.Fatal(err)
		}
		q := httptest.NewRequest(http.MethodGet, "/v1/pseudonyms?"+pseudonym.CapabilityKey+"="+e.Capability.String(), nil)
		q.Host, q.TLS = r.Name, &tls.ConnectionState{ServerName: r.Name}
		w := httptest.NewRecorder()
		entrances.ServeHTTP(w, q)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
	}
}

// fixed is a source that says the same whatever happens.
type fixed struct{ e *mutual.Entry }

func (f fixed) Pseudonym(context.Context, pseudonym.Label) (*mutual.Entry, error) { return f.e, nil }

// A gateway leads names to the store of which it knows nothing, while the database does not answer, and only then.
func TestRouterLeadsToTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := error(nil)
		r, err := newRouter(func(context.Context, pseudonym.Label, time.Time) (database.Route, error) {
			return database.Route{Tenant: database.Tenant{Site: benchSite}}, says
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		r.store = &route{site: testZone.Store(), to: placeOf(database.Tenant{Addresses: []string{"192.0.2.9:1"}})}
		leads := func(when string, l pseudonym.Label, site string, want error) {
			t.Helper()
			if found, err := r.find(t.Context(), l); !errors.Is(err, want) || err == nil && found.site != site {
				t.Errorf("%s: %v, %v", when, found, err)
			}
		}
		seen, never := pseudonym.NewLabel(), pseudonym.NewLabel()
		leads("it is there", seen, benchSite, nil)
		says = pseudonym.ErrNone
		leads("nobody has it", never, "", pseudonym.ErrNone)
		says = gone
		leads("the database is gone", seen, benchSite, nil)
		leads("the database is gone", never, testZone.Store(), nil)
		time.Sleep(keepRoute)
		leads("a day later", never, testZone.Store(), nil)
		time.Sleep(goneFor)
		says = pseudonym.ErrNone
		leads("the database is back", never, "", pseudonym.ErrNone)
	})
}

// While the database does not answer, the store shows a stranger the same for its own names and for all others.
func TestStandInsLookAlike(t *testing.T) {
	b := newBroom(t)
	r, err := b.Cloud.store.Register(t.Context(), testZone.Store(), ca.KeyID{1}, pseudonym.NewOwner())
	if err != nil {
		t.Fatal(err)
	}
	mine, _ := testZone.Label(r.Name)
	b.Cloud.own = newOwn(t.Context(), testZone.Store(), b.db, slog.New(slog.DiscardHandler))
	source := storeSource{b.Cloud}
	if e := source.Kept(mine); e == nil || e.Client != (ca.KeyID{1}) {
		t.Fatalf("the holder: %+v", e)
	}
	var shown []string
	for _, l := range []pseudonym.Label{mine, pseudonym.NewLabel()} {
		e := source.Kept(l)
		if e == nil || l != mine && (e.Client == ca.KeyID{1} || e.Client == ca.KeyID{}) {
			t.Fatalf("%+v", e)
		}
		leaf, err := x509.ParseCertificate(e.Chain[0])
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, fmt.Sprint(e.Site, len(e.Chain), leaf.Issuer, leaf.NotAfter.Sub(leaf.NotBefore).Round(time.Minute), e.Left/60, len(leaf.Extensions), leaf.DNSNames[0] == testZone.Name(l)))
	}
	if shown[0] != shown[1] {
		t.Errorf("%q", shown)
	}
}
