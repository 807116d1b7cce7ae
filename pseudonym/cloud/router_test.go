package cloud

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/database"
)

// While the database is gone, known pseudonyms lead to where they did, and nobody waits for it each time. A revocation holds once the
// database says so.
func TestRouterWithoutTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, address, gone := 0, "192.0.2.7:443", error(nil)
		r, err := newRouter(func(ctx context.Context, l pseudonym.Label, _ time.Time) (database.Tenant, error) {
			asked++
			if errors.Is(gone, context.DeadlineExceeded) { // it is silent
				<-ctx.Done()
				return database.Tenant{}, ctx.Err()
			}
			if gone != nil {
				return database.Tenant{}, gone
			}
			return database.Tenant{Site: "news.example", Addresses: []string{address}}, nil
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
		route(one, address, nil) // the database is asked each time

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
	})
}

// The gateway applies changes at once, so they hold even if the database goes away before the next connection.
func TestRouterFollowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused, gone := errors.New("refused"), false
		sites := map[pseudonym.Label]database.Tenant{}
		r, err := newRouter(func(_ context.Context, l pseudonym.Label, _ time.Time) (database.Tenant, error) {
			if gone {
				return database.Tenant{}, refused
			}
			return sites[l], nil
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
			if strings.Join(got.Addresses, " ") != want || (err == nil) != (want != "") {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
			time.Sleep(goneFor)
		}
	})
}
