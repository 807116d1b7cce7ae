package board

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"heddle/board/space"
)

// A machine whose clock was a year ahead, and is set right, also while the board does not run: leases take their time.
func TestTheMachinesClockIsSetBack(t *testing.T) {
	const year = 365 * 24 * time.Hour
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, restart := range []bool{false, true} {
		var offset atomic.Int64
		offset.Store(int64(year))
		id, o := fresh(t), LocalOptions{File: filepath.Join(t.TempDir(), "board.db"), Clock: func() time.Time { return start.Add(time.Duration(offset.Load())) }}
		var who *Client
		t.Run("", func(t *testing.T) {
			board := serve(t, id, o)
			who = client(t, board.Reference, fresh(t))
			if _, err := who.Out(t.Context(), space.Tuple{space.Int(1)}, Put{Lease: time.Minute}); err != nil {
				t.Fatal(err)
			}
			if !restart {
				leaseEnds(t, who, &offset)
			}
		})
		if restart {
			board := serve(t, id, o)
			leaseEnds(t, client(t, board.Reference, who.Identity), &offset)
		}
	}
}

func leaseEnds(t *testing.T, who *Client, offset *atomic.Int64) {
	t.Helper()
	for at, want := range []error{nil, nil, ErrNone} {
		offset.Store(int64(time.Duration(at) * 30 * time.Second))
		if _, err := who.Rdp(t.Context(), space.Template{space.Int(1)}); !errors.Is(err, want) {
			t.Errorf("%d s after the clock was set back: %v", 30*at, err)
		}
	}
	if _, err := who.Out(t.Context(), space.Tuple{space.Int(2)}, Put{Lease: time.Minute}); err != nil {
		t.Error(err)
	}
}
