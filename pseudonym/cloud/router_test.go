package cloud

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/netutil"
	"heddle/internal/pgtest"
	"heddle/internal/polltest"
	"heddle/pseudonym"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/database"
	"heddle/pseudonym/gateway"
)

// While the database is gone, known pseudonyms lead to where they did, and nobody waits for it each time. A revocation holds once the
// database says so.
func TestRouterWithoutTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, address, gone, until := 0, "192.0.2.7:443", error(nil), time.Now().Add(1000*time.Hour)
		r, err := newRouter(func(ctx context.Context, l pseudonym.Label, _ time.Time) (database.Route, error) {
			asked++
			if errors.Is(gone, context.DeadlineExceeded) { // it is silent
				<-ctx.Done()
				return database.Route{}, ctx.Err()
			}
			if gone != nil {
				return database.Route{}, gone
			}
			return database.Route{Tenant: database.Tenant{Site: "news.example", Addresses: []string{address}}, Until: until}, nil
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		one, two := pseudonym.NewLabel(), pseudonym.NewLabel()
		route := func(l pseudonym.Label, want string, why error) {
			t.Helper()
			if got, err := r.Route(t.Context(), l); strings.Join(got.Addresses, " ") != want || !errors.Is(err, why) {
				t.Errorf("%q, %v; want %q, %v", got, err, want, why)
			}
		}
		route(one, address, nil)
		address = "192.0.2.8:443"
		time.Sleep(freshFor)
		route(one, address, nil)
		time.Sleep(freshFor)

		refused := errors.New("refused")
		for _, gone = range []error{refused, context.DeadlineExceeded} {
			before, begin := asked, time.Now()
			for range 10 {
				route(one, address, nil)
			}
			if asked != before+1 || time.Since(begin) > askFor {
				t.Errorf("%v: asked %d times in %v", gone, asked-before, time.Since(begin))
			}
			time.Sleep(goneFor)
		}
		gone = refused
		route(two, "", refused) // it was never known

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		gone = context.Canceled
		if _, err := r.Route(ended, one); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that went away: %v", err)
		}

		gone, address = pseudonym.ErrNone, ""
		route(one, "", pseudonym.ErrNone)
		gone = refused
		route(one, "", refused) // that it was revoked is known too

		gone, address = nil, "192.0.2.9:443"
		route(one, address, nil)
		time.Sleep(keepRoute)
		gone, address = refused, ""
		route(one, "", refused) // too old

		gone, address, until = nil, "192.0.2.9:443", time.Now().Add(keepRoute/2)
		route(one, address, nil)
		time.Sleep(keepRoute / 2)
		gone = refused
		route(one, "", refused) // it has ended, as far as is known
		gone, until = nil, until.Add(time.Hour)
		route(one, address, nil) // it was renewed
	})
}

// The gateway applies changes at once, so they hold even if the database goes away before the next connection.
func TestRouterFollowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused, gone, until := errors.New("refused"), false, time.Now().Add(time.Hour)
		sites := map[pseudonym.Label]database.Tenant{}
		r, err := newRouter(func(_ context.Context, l pseudonym.Label, _ time.Time) (database.Route, error) {
			if gone {
				return database.Route{}, refused
			}
			return database.Route{Tenant: sites[l], Until: until}, nil
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		stays, moves, leaves, revoked := pseudonym.NewLabel(), pseudonym.NewLabel(), pseudonym.NewLabel(), pseudonym.NewLabel()
		sites[stays] = database.Tenant{Site: "stays.example", Addresses: []string{"192.0.2.1:1"}}
		sites[moves] = database.Tenant{Site: "moves.example", Addresses: []string{"192.0.2.2:1"}}
		sites[leaves] = database.Tenant{Site: "leaves.example", Addresses: []string{"192.0.2.3:1"}}
		sites[revoked] = sites[stays]
		for l := range sites {
			if _, err := r.Route(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		moved := database.Tenant{Site: "moves.example", Addresses: []string{"192.0.2.4:1", "192.0.2.5:1"}}
		r.follow(t.Context(), revoked, nil)
		r.follow(t.Context(), pseudonym.Sites, func(context.Context) ([]database.Tenant, error) { return nil, refused })
		r.follow(t.Context(), pseudonym.Sites, func(context.Context) ([]database.Tenant, error) {
			return []database.Tenant{sites[stays], moved}, nil
		})
		gone = true
		for l, want := range map[pseudonym.Label]string{stays: "192.0.2.1:1", moves: "192.0.2.4:1 192.0.2.5:1", leaves: "", revoked: ""} {
			got, err := r.Route(t.Context(), l)
			if err == nil && !got.Until.Equal(until) {
				t.Errorf("%v: it ends at %v, not %v", l, got.Until, until)
			}
			if strings.Join(got.Addresses, " ") != want || (err == nil) != (want != "") {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
			time.Sleep(goneFor)
		}
	})
}

// The database is asked once for the connections of a pseudonym, until it tells of a change, and now and then: it does not tell of an end,
// and what it tells may get lost.
func TestRouterAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, gone, during := 0, error(nil), func() {}
		r, err := newRouter(func(context.Context, pseudonym.Label, time.Time) (database.Route, error) {
			asked++
			during()
			return database.Route{Tenant: database.Tenant{Site: "news.example", Addresses: []string{"192.0.2.7:443"}}}, gone
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		one, two := pseudonym.NewLabel(), pseudonym.NewLabel()
		asks := func(what string, want int, why error) {
			t.Helper()
			before := asked
			for range 10 {
				time.Sleep(time.Nanosecond)
				if _, err := r.Route(t.Context(), one); !errors.Is(err, why) {
					t.Errorf("%s: %v, want %v", what, err, why)
				}
			}
			if asked-before != want {
				t.Errorf("%s: asked %d times, want %d", what, asked-before, want)
			}
		}
		sites := func(context.Context) ([]database.Tenant, error) {
			return []database.Tenant{{Site: "news.example", Addresses: []string{"192.0.2.7:443"}}}, nil
		}
		away := func(context.Context) ([]database.Tenant, error) { return nil, errors.New("refused") }
		asks("the first time", 1, nil)
		asks("again", 0, nil)
		r.follow(t.Context(), two, nil)
		asks("after a change of another one", 0, nil)
		r.follow(t.Context(), one, nil)
		asks("after a change", 1, nil)
		for _, l := range []pseudonym.Label{pseudonym.Sites, ""} {
			r.follow(t.Context(), l, sites)
			asks("after a change of sites", 1, nil)
			r.follow(t.Context(), l, away)
			asks("after a change of sites that nobody knows", 1, nil)
		}
		r.follow(t.Context(), one, nil)
		during = func() { r.follow(t.Context(), one, nil); during = func() {} }
		asks("after a change during the question", 2, nil)

		gone = pseudonym.ErrNone
		begin := time.Now()
		for _, err = r.Route(t.Context(), one); err == nil; _, err = r.Route(t.Context(), one) {
			time.Sleep(100 * time.Millisecond)
		}
		if late := time.Since(begin); late > 5*time.Second || !errors.Is(err, pseudonym.ErrNone) {
			t.Errorf("a pseudonym that ended is led for %v, %v", late, err)
		}
	})
}

// Names that somebody makes up take no place, and those of the others have a bound.
func TestRouterIsBounded(t *testing.T) {
	exists := true
	r, err := newRouter(func(context.Context, pseudonym.Label, time.Time) (database.Route, error) {
		if !exists {
			return database.Route{}, pseudonym.ErrNone
		}
		return database.Route{Tenant: database.Tenant{Site: "news.example", Addresses: []string{"192.0.2.7:443"}}}, nil
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	route := func(l pseudonym.Label, n int) {
		t.Helper()
		for i := range n {
			if _, err := r.Route(t.Context(), l+pseudonym.Label(strconv.Itoa(i))); (err == nil) != exists {
				t.Fatal(err)
			}
		}
	}
	route("a", 10)
	exists = false
	route("b", knownRoutes+10)
	if n := r.known.Len(); n != 10 {
		t.Errorf("it knows %d pseudonyms, want 10", n)
	}
	exists = true
	route("c", knownRoutes+10)
	if n := r.known.Len(); n != knownRoutes {
		t.Errorf("it knows %d pseudonyms, want %d", n, knownRoutes)
	}
}

// led is a gateway with a site behind it, and the store in another process.
type led struct {
	*Cloud
	store *database.DB
	at    string
	asked atomic.Int64 // questions of the gateway
}

func newLed(t testing.TB, file string) *led {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	key := make([]byte, database.SealKeySize)
	seal, err := database.NewSeal(key)
	if err != nil {
		t.Fatal(err)
	}
	g := &led{}
	if g.store, err = database.Open(t.Context(), file, seal, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.store.Close() })
	if g.Cloud, err = Open(t.Context(), Options{Zone: testZone, Dir: t.TempDir(), Database: file, Log: log}, Parts{Gateway: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	ask := g.router.ask
	g.router.ask = func(ctx context.Context, l pseudonym.Label, now time.Time) (database.Route, error) {
		g.asked.Add(1)
		return ask(ctx, l, now)
	}
	ctx, stop := context.WithCancel(context.Background())
	listen := func(serve func(net.Listener)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan bool)
		go func() { defer close(ended); serve(l) }()
		t.Cleanup(func() { stop(); l.Close(); <-ended })
		return l.Addr().String()
	}
	g.at = listen(func(l net.Listener) {
		if err := g.ServeGateway(ctx, l); err != nil {
			t.Error(err)
		}
	})
	issuer, _ := catest.NewIssuer(t, string(testZone))
	siteKey := catest.NewKey(t)
	cert, err := issuer.Server("site."+string(testZone), siteKey.Public(), time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: siteKey}}}
	site := listen(func(l net.Listener) {
		_ = netutil.Serve(ctx, gateway.Introduced(l, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}), func(c net.Conn) {
			go func() {
				in := tls.Server(c, config)
				defer in.Close()
				_, _ = io.Copy(in, in)
			}()
		})
	})
	if err := g.store.AddTenant(t.Context(), database.Tenant{Site: benchSite, Addresses: []string{site}, Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *led) add(t testing.TB) pseudonym.Label {
	t.Helper()
	p := database.Pseudonym{Label: pseudonym.NewLabel(), Site: benchSite, Certificate: []byte{1}, Key: []byte{1}, Created: time.Now(), Expires: time.Now().Add(time.Hour)}
	if err := g.store.Add(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p.Label
}

// visit makes a connection and has the site answer.
func (g *led) visit(t testing.TB, l pseudonym.Label) (*tls.Conn, error) {
	t.Helper()
	c, err := tls.Dial("tcp", g.at, &tls.Config{ServerName: testZone.Name(l), InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(polltest.Patience))
	if _, err = c.Write([]byte{1}); err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	return c, err
}

// A gateway asks the database once for all connections of a pseudonym, and refuses it when another process has revoked it.
func TestGatewayLearnsOfARevocation(t *testing.T) {
	for name, at := range map[string]func(*testing.T) string{
		"SQLite":     func(t *testing.T) string { return filepath.Join(t.TempDir(), "pseudonyms.db") },
		"PostgreSQL": func(t *testing.T) string { return pgtest.Start(t).Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newLed(t, at(t))
			g.router.fresh = time.Hour // so that only the message counts
			l, stays := g.add(t), g.add(t)
			open, err := g.visit(t, l)
			if err != nil {
				t.Fatal(err)
			}
			const more = 50
			for range more {
				if _, err := g.visit(t, l); err != nil {
					t.Fatal(err)
				}
			}
			// A change while it asks has it ask again.
			if age, _ := g.router.state(); g.asked.Load() > 1+2*int64(age) || g.asked.Load() > more/2 {
				t.Errorf("asked %d times for %d connections, after %d changes", g.asked.Load(), 1+more, age)
			}
			if err := g.store.Revoke(t.Context(), l, time.Now()); err != nil {
				t.Fatal(err)
			}
			if _, err := open.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection goes on: %v", err)
			}
			polltest.Await(t, "it is refused", func() bool { _, err := g.visit(t, l); return err != nil })
			if _, err := g.visit(t, stays); err != nil {
				t.Errorf("another pseudonym: %v", err)
			}
		})
	}
}

// Connections by a gateway, with TLS to a server of Go behind it: of a pseudonym that the gateway knows, and each of another one.
func BenchmarkConnections(b *testing.B) {
	for _, base := range []string{"SQLite", "PostgreSQL"} {
		for _, kind := range []string{"known", "new"} {
			b.Run(base+"/"+kind, func(b *testing.B) {
				file := filepath.Join(b.TempDir(), "pseudonyms.db")
				if base == "PostgreSQL" {
					file = pgtest.Start(b).Database(b)
				}
				g := newLed(b, file)
				labels := []pseudonym.Label{g.add(b)}
				for len(labels) < b.N && kind == "new" {
					labels = append(labels, g.add(b))
				}
				b.ResetTimer()
				for i := range b.N {
					c, err := g.visit(b, labels[i%len(labels)])
					if err != nil {
						b.Fatal(err)
					}
					c.Close()
				}
				b.ReportMetric(float64(g.asked.Load())/float64(b.N), "queries/op")
			})
		}
	}
}
