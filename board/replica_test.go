package board

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"heddle/board/space"
	"heddle/identity"
	"heddle/internal/polltest"
	"heddle/path"
)

// replica is a server of a board that is one thing behind all of them; how it answers, the test says.
type replica struct {
	Backend
	result func(space.Result) (space.Result, error)
	asked  atomic.Int32
}

func (r *replica) say(result space.Result, err error) (space.Result, error) {
	r.asked.Add(1)
	if err != nil || r.result == nil {
		return result, err
	}
	return r.result(result)
}

func (r *replica) Apply(ctx context.Context, op space.SignedOp, wait time.Duration) (space.Result, error) {
	return r.say(r.Backend.Apply(ctx, op, wait))
}

func (r *replica) Read(ctx context.Context, who identity.Key, q space.Query, wait time.Duration) (space.Result, error) {
	return r.say(r.Backend.Read(ctx, who, q, wait))
}

// replicated serves a board by four servers, of which one may lie.
func replicated(t *testing.T, results ...func(space.Result) (space.Result, error)) (Reference, []*replica) {
	t.Helper()
	one := serve(t, fresh(t), LocalOptions{})
	r := Reference{Space: one.Space, Faults: 1}
	var all []*replica
	for i := range 4 {
		backend := &replica{Backend: one.Local}
		if i < len(results) {
			backend.result = results[i]
		}
		idle := func(ctx context.Context) error { <-ctx.Done(); return nil }
		r.Replicas = append(r.Replicas, served(t, fresh(t), backend, one.Member, idle).Replicas...)
		all = append(all, backend)
	}
	return r, all
}

func TestOneReplicaMayLie(t *testing.T) {
	forger := fresh(t)
	for name, lie := range map[string]func(space.Result) (space.Result, error){
		"nothing there": func(space.Result) (space.Result, error) { return space.Result{Status: space.None}, nil },
		"another status": func(r space.Result) (space.Result, error) {
			r.Status = space.Full
			return r, nil
		},
		"another tuple": func(r space.Result) (space.Result, error) {
			op, err := space.Op{Verb: space.Out, Lease: time.Hour, Tuple: space.Tuple{space.String("x")}}.Sign(forger, time.Now())
			r.Entries = []space.Entry{{Seq: 1, Until: time.Now(), Op: op}}
			return r, err
		},
		"another clock": func(r space.Result) (space.Result, error) {
			return space.Result{Status: space.Clock, Now: r.Now.Add(time.Hour)}, nil
		},
		"an error":  func(space.Result) (space.Result, error) { return space.Result{}, errors.New("broken") },
		"no status": func(space.Result) (space.Result, error) { return space.Result{Status: 200}, nil },
	} {
		r, replicas := replicated(t, lie)
		c := client(t, r, fresh(t))
		id, err := c.Out(t.Context(), space.Tuple{space.String("x")}, Put{Lease: time.Hour})
		if err != nil {
			t.Errorf("%s: put: %v", name, err)
			continue
		}
		if e, err := c.Rdp(t.Context(), space.Template{space.String("x")}); err != nil || e.ID() != id {
			t.Errorf("%s: read: %v", name, err)
		}
		if e, err := c.In(t.Context(), space.Template{space.String("x")}); err != nil || e.ID() != id {
			t.Errorf("%s: taken: %v", name, err)
		}
		if _, err := c.Rdp(t.Context(), space.Template{space.String("x")}); !errors.Is(err, ErrNone) {
			t.Errorf("%s: read when taken: %v", name, err)
		}
		// The others answered first perhaps, and a request that nobody needs any more ends soon.
		for i, backend := range replicas {
			for end := time.Now().Add(time.Minute); backend.asked.Load() == 0; {
				if _, err := c.Rdp(t.Context(), space.Template{space.String("x")}); !errors.Is(err, ErrNone) || time.Now().After(end) {
					t.Fatalf("%s: replica %d was never asked: %v", name, i, err)
				}
			}
		}
	}
}

func TestMoreThanOneLies(t *testing.T) {
	liar := func(n uint64) func(space.Result) (space.Result, error) {
		return func(r space.Result) (space.Result, error) {
			r.Version += n
			return r, nil
		}
	}
	down := func(space.Result) (space.Result, error) { return space.Result{}, errors.New("down") }
	for want, lies := range map[string][]func(space.Result) (space.Result, error){
		"do not say the same":     {liar(1), liar(2), liar(3)},
		"too few replicas answer": {down, down, down},
	} {
		r, _ := replicated(t, lies...)
		polltest.Again(t, func(try int) error { // a client asks again until its time is over
			c, err := NewClient(ClientOptions{Reference: r, Identity: fresh(t), Timeout: time.Second << try})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Rdp(t.Context(), nil)
			c.Close()
			if err == nil || errors.Is(err, ErrNone) {
				t.Fatalf("%s: %v", want, err)
			}
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "deadline") {
				return fmt.Errorf("%s: %w", want, err)
			}
			return nil
		})
	}
}

// Of a single server what it says must be signed, and be what was asked for.
func TestOneServerThatLies(t *testing.T) {
	forger, ann := fresh(t), fresh(t)
	lie := atomic.Pointer[func(space.Result) (space.Result, error)]{}
	one := serve(t, fresh(t), LocalOptions{})
	backend := &replica{Backend: one.Local, result: func(r space.Result) (space.Result, error) {
		if f := lie.Load(); f != nil {
			return (*f)(r)
		}
		return r, nil
	}}
	r := served(t, fresh(t), backend, one.Member, func(ctx context.Context) error { <-ctx.Done(); return nil })
	r.Space = one.Space
	c := client(t, r, ann)
	if _, err := c.Out(t.Context(), space.Tuple{space.String("x")}, Put{Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Out(t.Context(), space.Tuple{space.String("y")}, Put{Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	forged, err := space.Op{Verb: space.Out, Space: one.Space, Lease: time.Hour, Tuple: space.Tuple{space.String("x")}}.Sign(forger, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	raw := append([]byte{}, forged.Bytes()...)
	copy(raw[33:], ann.Key().Bytes()) // in ann's name
	if forged, err = space.DecodeOp(raw); err != nil {
		t.Fatal(err)
	}
	other, err := one.Local.Read(t.Context(), ann.Key(), space.Query{Template: space.Template{space.String("y")}, Limit: 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*space.Result){
		"forged":              func(r *space.Result) { r.Entries[0].Op = forged },
		"kept for too long":   func(r *space.Result) { r.Entries[0].Until = r.Entries[0].Until.Add(time.Hour) },
		"not what was wanted": func(r *space.Result) { *r = other },
		"none after all":      func(r *space.Result) { r.Entries = nil },
		"twice":               func(r *space.Result) { r.Entries = append(r.Entries, r.Entries[0]) },
	} {
		f := func(r space.Result) (space.Result, error) {
			r.Entries = append([]space.Entry{}, r.Entries...)
			change(&r)
			return r, nil
		}
		lie.Store(&f)
		_, err := c.Rdp(t.Context(), space.Template{space.String("x")})
		if wrong, ok := errors.AsType[*path.Error](err); !ok || wrong.What != "the board's answer" {
			t.Errorf("%s: %v", name, err)
		}
	}
	lie.Store(nil)
	if _, err := c.Rdp(t.Context(), space.Template{space.String("x")}); err != nil {
		t.Errorf("the truth: %v", err)
	}
}

// An answer that is lost, so that the client asks again, and what it asked for is done once.
func TestALostAnswer(t *testing.T) {
	one := serve(t, fresh(t), LocalOptions{})
	lose := atomic.Int32{}
	backend := &replica{Backend: one.Local, result: func(r space.Result) (space.Result, error) {
		if lose.Add(-1) >= 0 {
			return space.Result{}, errors.New("lost")
		}
		return r, nil
	}}
	r := served(t, fresh(t), backend, one.Member, func(ctx context.Context) error { <-ctx.Done(); return nil })
	r.Space = one.Space
	c := client(t, r, fresh(t))
	lose.Store(2)
	id, err := c.Out(t.Context(), space.Tuple{space.String("x")}, Put{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := c.List(t.Context(), nil); err != nil || len(all) != 1 || all[0].ID() != id {
		t.Errorf("%d tuples, %v", len(all), err)
	}
	lose.Store(2)
	if e, err := c.Inp(t.Context(), space.Template{space.String("x")}); err != nil || e.ID() != id {
		t.Errorf("taken: %v", err)
	}
}

// The error of a failed out says whether the board may have the tuple.
func TestAFailedOutMayBeDone(t *testing.T) {
	one := serve(t, fresh(t), LocalOptions{})
	lost, cancel := context.WithCancel(t.Context()) // once the board was asked twice, so that the client knows of a lost answer
	backend := &replica{Backend: one.Local}
	backend.result = func(space.Result) (space.Result, error) {
		if backend.asked.Load() > 1 {
			cancel()
		}
		return space.Result{}, errors.New("lost")
	}
	r := served(t, fresh(t), backend, one.Member, func(ctx context.Context) error { <-ctx.Done(); return nil })
	r.Space = one.Space
	nowhere := r
	nowhere.Replicas = []Replica{{r.Replicas[0].Key, "127.0.0.1:1"}}
	for name, c := range map[string]struct {
		ctx     context.Context
		at      Reference
		timeout time.Duration
		may     bool
	}{
		"an answer that is lost": {lost, r, polltest.Patience, true},
		"nobody there":           {t.Context(), nowhere, 500 * time.Millisecond, false},
	} {
		user, err := NewClient(ClientOptions{Reference: c.at, Identity: fresh(t), Timeout: c.timeout})
		if err != nil {
			t.Fatal(err)
		}
		defer user.Close()
		_, err = user.Out(c.ctx, space.Tuple{space.String("x")}, Put{Lease: time.Hour})
		if err == nil || strings.Contains(err.Error(), "it may do it yet") != c.may {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestABoardThatForgotIsFoundOut(t *testing.T) {
	one := serve(t, fresh(t), LocalOptions{})
	c := client(t, one.Reference, fresh(t))
	if _, err := c.Out(t.Context(), space.Tuple{space.String("x")}, Put{Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	c.since += 5
	if _, err := c.Rdp(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "forgotten") {
		t.Errorf("%v", err)
	}
}
