package board

import (
	"log/slog"
	"sync"
	"time"
)

// steady is a clock that goes on when the machine's is set back, so that leases end in time. It starts at the board's last time, if
// that is later: a clock that was a year ahead once must not hold leases up for a year.
type steady struct {
	machine func() time.Time
	log     *slog.Logger

	mu    sync.Mutex
	last  time.Time
	ahead time.Duration // of the machine's clock
}

// small is how far clocks are set back without anything being wrong.
const small = time.Second

func (s *steady) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.machine().Round(0).Add(s.ahead) // Round: by what the machine's clock says, as the leases are
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
