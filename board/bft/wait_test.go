package bft

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"heddle/board"
	"heddle/board/space"
	"heddle/identity"
	"heddle/internal/polltest"
)

// Who waits for a tuple gets it once it is there, one of those who would take it and all who read it; and a wait ends.
func (f *fleet) checkWaits() {
	t := f.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	template := space.Template{space.String("waited for"), space.AnyOf(space.TypeInt)}
	taken, read := make(chan error), make(chan error)
	takers, givingUp := []*user{f.user(30 * time.Second), f.user(30 * time.Second)}, make(chan error)
	short, stop := context.WithCancel(ctx)
	for _, u := range takers {
		go func() {
			_, err := u.In(short, template)
			taken <- err
		}()
	}
	go func() {
		_, err := f.user(30*time.Second).Rd(ctx, template)
		read <- err
	}()
	go func() {
		_, err := f.user(30*time.Second).Inp(ctx, template)
		givingUp <- err
	}()
	if err := <-givingUp; !errors.Is(err, board.ErrNone) {
		t.Errorf("nothing is there, and a take that does not wait says %v", err)
	}
	f.waiting(3)
	put := f.user(30 * time.Second)
	anyone := board.Put{Lease: time.Hour, Takers: []identity.Key{space.Anyone}}
	if _, err := put.Out(ctx, space.Tuple{space.String("waited for"), space.Int(1)}, anyone); err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err != nil {
		t.Errorf("the first to take: %v", err)
	}
	stop()
	if err := <-taken; err == nil {
		t.Error("both took one tuple")
	}
	// The reader may have been late for the first. Nobody else may take this one: a replica hears late of who gave up.
	if _, err := put.Out(ctx, space.Tuple{space.String("waited for"), space.Int(2)}, board.Put{Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Errorf("to read: %v", err)
	}
}

// A device whose clock is wrong learns the board's.
func (f *fleet) checkClock() {
	f.t.Helper()
	c, err := board.NewClient(board.ClientOptions{Reference: f.reference, Identity: someone(f.t), Timeout: 30 * time.Second,
		Clock: func() time.Time { return time.Now().Add(-time.Hour) }})
	if err != nil {
		f.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Out(f.t.Context(), space.Tuple{space.String("late")}, board.Put{Lease: time.Minute}); err != nil {
		f.t.Errorf("with a clock an hour slow: %v", err)
	}
}

// waiting waits until so many requests wait at each replica.
func (f *fleet) waiting(n int) {
	f.t.Helper()
	for i := range f.running {
		polltest.Until(f.t, func() error {
			s, _, err := askStatus(f.t.Context(), f.home(i), f.dial)
			if err == nil && s.Waiting < n {
				err = fmt.Errorf("at replica %d %d requests wait, and not %d", i, s.Waiting, n)
			}
			return err
		})
	}
}

// One answer for all clocks: that of replicas which do not ask each other.
func TestRefusalsAreAlike(t *testing.T) {
	g := testGenesis(t)
	a := &app{genesis: g}
	values := map[string]bool{}
	for range 100 {
		r := a.refusal(space.Result{Status: space.Clock, Now: time.Now(), Detail: time.Now().String()})
		if off := time.Since(r.Now).Abs(); off > g.Limits.Slack/2 {
			t.Fatalf("the clock is said to be %v off", off)
		}
		values[string(r.Encode())] = true
	}
	if len(values) > 2 {
		t.Errorf("%d different answers", len(values))
	}
	full := a.refusal(space.Result{Status: space.Full, Now: time.Now(), Detail: "full"})
	if full.Status != space.Full || !full.Now.IsZero() || full.Detail != "full" {
		t.Errorf("%+v", full)
	}
}
