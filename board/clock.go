package board

import (
	"log/slog"
	"sync"
	"time"
)

// steady is a clock that never goes back, so that leases end. It starts at the board's last time if that is later. It
// continues when the machine's clock is set back: a clock that was once a year ahead must not extend leases by a year.
type steady struct {
	machine func() time.Time
	log     *slog.Logger

	mu    sync.Mutex
	last  time.Time
	ahead time.Duration // of the machine's clock
}

// small is a normal backward step of a clock.
const small = time.Second

func (s *steady) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.machine().Round(0).Add(s.ahead) // Round drops the monotonic reading, since leases follow the wall clock
	if back := s.last.Sub(now); back > 0 {
		s.ahead += back
		now = s.last
		if back > small {
			s.log.Warn("this machine's clock was set back; the board's goes on", "board_is_ahead_by", s.ahead.Round(time.Second))
		}
	}
	s.last = now
	return now
}
