package relay

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"heddle/internal/netutil"
)

// Pool keeps sessions dialled ahead, so that the first byte of a connection waits for no handshake.
type Pool struct {
	dial func(context.Context) (Session, error)
	want int
	log  *slog.Logger
	wake chan struct{} // holds one token if Run must look again

	mu   sync.Mutex
	warm []Session
	used map[Session]bool
	why  error // error of the last dial, nil if it worked
}

// NewPool makes a pool of want warm sessions, which [Pool.Run] dials. dial need not wait until the other side admits a
// session: the pool waits for warm sessions, and a session needed at once should not wait (see [LetIn]). log may be nil.
func NewPool(want int, dial func(context.Context) (Session, error), log *slog.Logger) *Pool {
	return &Pool{dial: dial, want: want, log: cmp.Or(log, slog.Default()), wake: make(chan struct{}, 1), used: map[Session]bool{}}
}

// Interval of checks, and limits of the pause after a failed dial, which grows.
const (
	lookEvery    = 2 * time.Second
	firstPause   = time.Second
	longestPause = time.Minute
)

// Run keeps the pool full until ctx ends, and then ends all sessions.
func (p *Pool) Run(ctx context.Context) {
	defer p.end()
	wait := firstPause
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if p.dropDead() < p.want {
			if p.fill(ctx) {
				wait = firstPause
			} else {
				_ = netutil.Sleep(ctx, wait)
				wait = min(2*wait, longestPause)
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-tick.C:
		}
	}
}

func (p *Pool) fill(ctx context.Context) bool {
	s, err := p.dial(ctx)
	if err == nil {
		err = LetIn(ctx, s)
	}
	if ctx.Err() != nil {
		if err == nil {
			s.Abort("the relay ends")
		}
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && (p.why == nil || p.why.Error() != err.Error()) {
		p.log.Warn("no session can be dialled ahead", "error", err)
	}
	if p.why = err; err != nil {
		return false
	}
	p.warm = append(p.warm, s)
	return true
}

// ready reports whether a session can carry data now.
func ready(s Session) bool { return s.Status().State == "running" }

// dropDead ends warm sessions that are not ready, and counts the others.
func (p *Pool) dropDead() (left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warm = slices.DeleteFunc(p.warm, func(s Session) bool {
		if ready(s) {
			return false
		}
		s.Abort("it could not be used")
		return true
	})
	return len(p.warm)
}

// Get returns a warm session, or dials one. The caller must end it and pass it to [Pool.Done].
func (p *Pool) Get(ctx context.Context) (Session, error) {
	p.dropDead()
	p.mu.Lock()
	var s Session
	if len(p.warm) > 0 {
		s = p.warm[0]
		p.warm = slices.Delete(p.warm, 0, 1)
		p.used[s] = true
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	if s != nil {
		return s, nil
	}
	s, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.used[s] = true
	p.mu.Unlock()
	return s, nil
}

// Put adds a dialled session to the pool.
func (p *Pool) Put(s Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warm = append(p.warm, s)
}

// Done forgets a session that [Pool.Get] returned.
func (p *Pool) Done(s Session) {
	p.mu.Lock()
	delete(p.used, s)
	p.mu.Unlock()
}

// Sessions returns the waiting and the used sessions. why is what keeps the pool from being filled.
func (p *Pool) Sessions() (warm, used []Session, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.warm), slices.Collect(maps.Keys(p.used)), p.why
}

func (p *Pool) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.warm {
		s.Abort("the relay ends")
	}
	p.warm = nil
}
