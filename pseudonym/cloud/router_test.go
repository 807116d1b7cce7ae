package cloud

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/clocktest"
	"heddle/pseudonym"
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

// The times of a nameserver do not tell whether somebody has, or had, a name: it causes the same questions, and waits as long for them, also while the
// database is gone.
func TestNamesAreAskedForAlike(t *testing.T) {
	traces := map[string][]string{}
	for _, name := range []string{"valid", "nobody's", "revoked", "ended", "of a site that left"} {
		synctest.Test(t, func(t *testing.T) {
			asked, has, silent, until := 0, name != "nobody's", false, time.Now().Add(1000*time.Hour)
			r, err := newRouter(func(ctx context.Context, _ pseudonym.Label, now time.Time) (database.Route, error) {
				asked++
				switch {
				case silent:
					<-ctx.Done()
					return database.Route{}, ctx.Err()
				case !has:
					return database.Route{}, pseudonym.ErrNone
				}
				return database.Route{Tenant: database.Tenant{Site: "news.example"}, Until: until}, nil
			}, slog.New(slog.DiscardHandler))
			if err == nil {
				err = r.alike()
			}
			if err != nil {
				t.Fatal(err)
			}
			l := pseudonym.NewLabel()
			find := func(what string) {
				for range 3 {
					begin, before := time.Now(), asked
					_, _ = r.find(t.Context(), l)
					traces[name] = append(traces[name], fmt.Sprintf("%s: %d questions, %v", what, asked-before, time.Since(begin)))
					time.Sleep(time.Millisecond)
				}
			}
			find("the first time")
			time.Sleep(freshFor)
			find("later")
			switch name {
			case "revoked":
				has = false
				r.drop(l)
			case "ended":
				has = false
			case "of a site that left":
				has = false
				r.drop(l)
			}
			find("after a change of some")
			r.follow(t.Context(), pseudonym.Sites, func(context.Context) ([]database.Tenant, error) { return nil, nil })
			find("after a change of sites")
			silent = true
			find("soon after the database is gone")
			time.Sleep(freshFor)
			find("without the database")
			time.Sleep(goneFor)
			find("still without it")
			silent = false
			time.Sleep(goneFor)
			find("when it is back")
		})
	}
	for name, trace := range traces {
		if want := traces["valid"]; !slices.Equal(trace, want) {
			t.Errorf("%s:\n%s\nvalid:\n%s", name, strings.Join(trace, "\n"), strings.Join(want, "\n"))
		}
	}
}

// How old the answers are that stand in for the database is in the log, the status and the metrics.
func TestAgeOfAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		gone := error(nil)
		r, err := newRouter(func(context.Context, pseudonym.Label, time.Time) (database.Route, error) {
			return database.Route{Tenant: database.Tenant{Site: "news.example"}}, gone
		}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		c := &Cloud{parts: Parts{Gateway: true, DNS: true}, router: r, way: gateway.New(gateway.Options{Router: r}), addresses: &addresses{router: r}}
		age := func(want int64) {
			t.Helper()
			if s := c.Status(); s.Gateway.AnswerAge != want || s.DNS.AnswerAge != want {
				t.Errorf("%d and %d seconds, want %d", s.Gateway.AnswerAge, s.DNS.AnswerAge, want)
			}
		}
		one, two := pseudonym.NewLabel(), pseudonym.NewLabel()
		route := func(l pseudonym.Label) {
			t.Helper()
			if _, err := r.Route(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		route(one)
		time.Sleep(time.Hour)
		route(two)
		time.Sleep(time.Minute)
		age(0)
		gone = errors.New("refused")
		route(two)
		age(60)
		time.Sleep(goneFor)
		route(one)
		age(3662)
		route(two)
		age(3662) // the oldest
		for _, want := range []string{"answer_age_s=60", "answer_age_s=3662"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("no %s in the log:\n%s", want, &log)
			}
		}
		time.Sleep(goneFor)
		gone = nil
		route(two)
		age(0)
	})
}

// Somebody sets the clock of a gateway. What it knows ends when it would have ended, by the time that passes.
func TestClockOfAGatewayIsSet(t *testing.T) {
	for _, by := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		begin, gone, refused := time.Now(), error(nil), errors.New("refused")
		r, err := newRouter(func(context.Context, pseudonym.Label, time.Time) (database.Route, error) {
			return database.Route{Tenant: database.Tenant{Site: "news.example"}, Until: begin.Add(time.Hour).Round(0)}, gone
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		l := pseudonym.NewLabel()
		for _, c := range []struct {
			after, by time.Duration
			gone, why error
		}{{0, 0, nil, nil}, {freshFor - 1, by, refused, nil}, {time.Hour - time.Minute, by, refused, nil}, {time.Hour, by, refused, refused}} {
			gone = c.gone
			r.now = func() time.Time { return clocktest.Jump(t, begin.Add(c.after), c.by) }
			to, err := r.Route(t.Context(), l)
			if !errors.Is(err, c.why) {
				t.Errorf("set by %v after %v: %v", by, c.after, err)
			}
			if left := to.Until.Sub(r.now()); err == nil && left != time.Hour-c.after {
				t.Errorf("set by %v after %v: it has %v", by, c.after, left)
			}
		}
	}
}
