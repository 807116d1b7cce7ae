package cloud

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"heddle/pseudonym"
)

// While the database is gone, known pseudonyms lead to where they did, and nobody waits for it each time. A revocation holds once the
// database says so.
func TestRouterWithoutTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, address, gone := 0, "192.0.2.7:443", error(nil)
		r, err := newRouter(func(ctx context.Context, l pseudonym.Label, _ time.Time) (string, error) {
			asked++
			if errors.Is(gone, context.DeadlineExceeded) { // it is silent
				<-ctx.Done()
				return "", ctx.Err()
			}
			return address, gone
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		one, two := pseudonym.NewLabel(), pseudonym.NewLabel()
		route := func(l pseudonym.Label, want string, why error) {
			t.Helper()
			if got, err := r.Route(t.Context(), l); got != want || !errors.Is(err, why) {
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
		route(two, address, refused) // it was never known

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
