package relay

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/stripe"
)

// idle is a session that only has a state.
type idle struct {
	net.Conn
	mu    sync.Mutex
	state string
	ended string
}

func (i *idle) CloseWrite() error { return nil }

func (i *idle) Abort(why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = why
}

func (i *idle) Status() stripe.Status {
	i.mu.Lock()
	defer i.mu.Unlock()
	return stripe.Status{State: i.state}
}

func (i *idle) fail() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.state = "failed"
}

func (i *idle) isEnded() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ended != ""
}

// idles are all sessions that were dialled.
type idles struct {
	mu  sync.Mutex
	all []*idle
}

func (d *idles) dial(context.Context) (Session, error) {
	time.Sleep(time.Second) // the handshakes
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, &idle{state: "running"})
	return d.all[len(d.all)-1], nil
}

func (d *idles) list() []*idle {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*idle(nil), d.all...)
}

func TestPoolKeepsSessionsWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var dialled idles
		p := NewPool(2, dialled.dial, nil)
		done := make(chan struct{})
		go func() { p.Run(ctx); close(done) }()
		time.Sleep(3 * time.Second)
		if n := len(dialled.list()); n != 2 {
			t.Fatalf("%d are warm", n)
		}
		began := time.Now()
		s, err := p.Get(ctx)
		if err != nil || s != Session(dialled.list()[0]) || time.Since(began) != 0 {
			t.Errorf("got %v after %v, %v", s, time.Since(began), err)
		}
		time.Sleep(2 * time.Second)
		if n := len(dialled.list()); n != 3 {
			t.Errorf("%d were dialled after one was taken", n)
		}
		dialled.list()[1].fail()
		time.Sleep(2 * lookEvery)
		if all := dialled.list(); !all[1].isEnded() || len(all) != 4 {
			t.Errorf("the dead one was ended: %v; %d were dialled", all[1].isEnded(), len(all))
		}
		if warm, used, why := p.Sessions(); len(warm) != 2 || len(used) != 1 || why != nil {
			t.Errorf("%d warm, %d used, %v", len(warm), len(used), why)
		}
		p.Done(s)
		cancel()
		<-done
		if all := dialled.list(); !all[2].isEnded() || !all[3].isEnded() || all[0].isEnded() {
			t.Error("at the end, warm sessions and no others are to be ended")
		}
	})
}

func TestPoolTriesAgainLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tries, log := 0, &strings.Builder{}
		p := NewPool(1, func(context.Context) (Session, error) {
			tries++
			return nil, errors.New("no path is up")
		}, slog.New(slog.NewTextHandler(log, nil)))
		done := make(chan struct{})
		go func() { p.Run(ctx); close(done) }()
		time.Sleep(time.Hour)
		cancel()
		<-done
		if tries < 60 || tries > 70 {
			t.Errorf("%d tries in an hour", tries)
		}
		if n := strings.Count(log.String(), "no path is up"); n != 1 {
			t.Errorf("it is told %d times", n)
		}
		if _, _, why := p.Sessions(); why == nil {
			t.Error("nothing says why")
		}
		if _, err := p.Get(t.Context()); err == nil {
			t.Error("Get gives no error")
		}
	})
}

// slow is a session that is let in, or refused, a second after it was dialled.
type slow struct {
	*idle
	refused error
}

func (s slow) Wait(context.Context) error {
	time.Sleep(time.Second)
	return s.refused
}

// A session that a program waits for is given at once, since its first bytes may go with the hello; one that is dialled
// ahead counts only once it was let in.
func TestPoolWaitsToBeLetInForWarmSessionsOnly(t *testing.T) {
	for _, refused := range []error{nil, errors.New("who are you")} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var dialled idles
			p := NewPool(1, func(ctx context.Context) (Session, error) {
				s, err := dialled.dial(ctx)
				return slow{s.(*idle), refused}, err
			}, slog.New(slog.DiscardHandler))
			begin := time.Now()
			s, err := p.Get(ctx)
			if passed := time.Since(begin); err != nil || passed != time.Second {
				t.Fatalf("a session after %v, %v; the handshakes take a second", passed, err)
			}
			p.Done(s)
			done := make(chan struct{})
			go func() { p.Run(ctx); close(done) }()
			time.Sleep(1500 * time.Millisecond)
			if warm, _, _ := p.Sessions(); len(warm) != 0 {
				t.Fatal("a session is warm that was not let in yet")
			}
			time.Sleep(time.Second)
			warm, _, why := p.Sessions()
			if want := refused == nil; (len(warm) == 1) != want || !errors.Is(why, refused) {
				t.Fatalf("%d are warm, and the reason is %v, where a session is refused with %v", len(warm), why, refused)
			}
			if ended := dialled.list()[1].isEnded(); ended != (refused != nil) {
				t.Fatalf("ended: %v, where a session is refused with %v", ended, refused)
			}
			cancel()
			<-done
		})
	}
}
