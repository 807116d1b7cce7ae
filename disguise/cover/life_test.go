package cover_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/cover/covertest"
)

func untilOver(ctx context.Context, _ *cover.Wire) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// Closing a socket with unread bytes resets the connection, so an end that takes no more reads on until the peer ended.
func TestReadsOnAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, peer := covertest.Pipe()
		go func() {
			for range 5 {
				_, _ = peer.Write([]byte("a"))
				time.Sleep(time.Second)
			}
			_ = peer.CloseWrite()
		}()
		began := time.Now()
		failed := errors.New("this is no block")
		err := cover.Carry(t.Context(), ours, cover.Life{}, 100, func([]byte) error { return failed }, untilOver)
		if took := time.Since(began); !errors.Is(err, failed) || took != 5*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestWaitsForNoPeerForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, _ := covertest.Pipe()
		began := time.Now()
		err := cover.Carry(t.Context(), ours, cover.Life{Age: time.Minute}, 100, func([]byte) error { return nil }, untilOver)
		if took := time.Since(began); err != nil || took < time.Minute || took > 2*time.Minute {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, _ := covertest.Pipe()
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the program ends")
		time.AfterFunc(time.Minute, func() { cancel(why) })
		began := time.Now()
		err := cover.Carry(ctx, ours, cover.Life{}, 100, func([]byte) error { return nil }, func(_ context.Context, w *cover.Wire) error {
			_, err := w.Write([]byte("nobody reads this"))
			return err
		})
		if took := time.Since(began); !errors.Is(err, why) || took != time.Minute {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestWireKeepsToItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, peer := covertest.Pipe()
		go func() {
			buffer := make([]byte, 100)
			for {
				if _, err := peer.Read(buffer); err != nil {
					_ = peer.CloseWrite()
					return
				}
			}
		}()
		err := cover.Carry(t.Context(), ours, cover.Life{Bytes: 10}, 100, func([]byte) error { return nil }, func(_ context.Context, w *cover.Wire) error {
			if n := w.Left(20); n != 10 {
				t.Errorf("%d bytes are left", n)
			}
			if _, err := w.Write(make([]byte, 8)); err != nil {
				t.Error(err)
			}
			if n := w.Left(1); n != 1 {
				t.Errorf("%d bytes are left", n)
			}
			if _, err := w.Write(make([]byte, 3)); err == nil {
				t.Error("it writes more than it may")
			}
			return nil
		})
		if err != nil || len(ours.Sent()) != 8 {
			t.Errorf("%v after %d bytes", err, len(ours.Sent()))
		}
	})
}

// registerOne does so in the first run of the test only.
var registerOne = sync.OnceFunc(func() { cover.Register(cover.Kind{Name: "one", Number: 200}) })

func TestRegisterRefusesASecondOne(t *testing.T) {
	registerOne()
	for _, k := range []cover.Kind{{Name: "one", Number: 201}, {Name: "two", Number: 200}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q, %d is registered twice", k.Name, k.Number)
				}
			}()
			cover.Register(k)
		}()
	}
}
