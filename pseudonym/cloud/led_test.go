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
	"sync/atomic"
	"testing"
	"time"

	"heddle/internal/netutil"
	"heddle/internal/pgtest"
	"heddle/internal/polltest"
	"heddle/pseudonym"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/database"
	"heddle/pseudonym/gateway"
	"heddle/pseudonym/recheck"
)

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

// All that a gateway asks after changes that it missed, with 50,000 pseudonyms that have connections.
func BenchmarkRecheck(b *testing.B) {
	for _, base := range []string{"SQLite", "PostgreSQL"} {
		b.Run(base, func(b *testing.B) {
			file := filepath.Join(b.TempDir(), "pseudonyms.db")
			if base == "PostgreSQL" {
				file = pgtest.Start(b).Database(b)
			}
			g := newLed(b, file)
			labels := make([]pseudonym.Label, 50_000)
			for i := range labels {
				labels[i] = pseudonym.NewLabel()
			}
			for i := range 100 {
				labels[i] = g.add(b)
			}
			var ended atomic.Int64
			for b.Loop() {
				ended.Store(0)
				c := recheck.Checker{Ended: g.router.Ended, Open: func(pseudonym.Label) bool { return true }, End: func(pseudonym.Label) { ended.Add(1) }}
				c.Check(b.Context(), labels...)
				c.Wait()
			}
			if n := ended.Load(); n != int64(len(labels))-100 {
				b.Errorf("%d ended", n)
			}
		})
	}
}
