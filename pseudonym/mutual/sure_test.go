package mutual

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/clocktest"
	"heddle/pseudonym"
)

// within is how fast a revocation has to take effect.
const within = 5 * time.Second

// following is a source that learns of changes by a way that may break.
type following struct {
	*cloud
	broken time.Time // since when no change arrives; the zero time is never
	silent bool      // it does not answer questions either
}

func (f *following) Heard() time.Time {
	if f.broken.IsZero() {
		return time.Now()
	}
	return f.broken
}

func (f *following) Pseudonym(ctx context.Context, l pseudonym.Label) (*Entry, error) {
	if f.silent {
		<-ctx.Done()
		return nil, errors.Join(ErrUnsure, ctx.Err())
	}
	return f.cloud.Pseudonym(ctx, l)
}

// A pseudonym that was revoked without a word is refused in time, whether somebody answers questions or not. While the database is gone, of which
// somebody knows, it was not revoked, and works.
func TestRevocationHoldsInTime(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(*following, pseudonym.Label)
		last   time.Duration // until when it may be used
	}{
		"nobody tells of changes": {func(f *following, l pseudonym.Label) { f.remove(l) }, within},
		"nobody answers":          {func(f *following, _ pseudonym.Label) { f.silent = true }, within},
		"the database is gone":    {func(f *following, _ pseudonym.Label) { f.gone = errors.New("the database is gone") }, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &following{cloud: newCloud(t)}
				s, err := NewServer(zone, f, 10)
				if err != nil {
					t.Fatal(err)
				}
				u := f.register(t, 50*time.Minute)
				visit := func() error {
					_, err := s.Pseudonym(t.Context(), tls.ConnectionState{ServerName: zone.Name(u.label)})
					return err
				}
				if err := visit(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if err := visit(); err != nil || f.asked[u.label] != 1 {
					t.Fatalf("%v, asked %d times", err, f.asked[u.label])
				}
				f.broken = time.Now()
				c.breaks(f, u.label)
				last := f.broken
				for time.Since(f.broken) < 40*time.Minute {
					if visit() == nil {
						last = time.Now()
					}
					time.Sleep(100 * time.Millisecond)
				}
				if used := last.Sub(f.broken); used > c.last || c.last > within && used < 39*time.Minute {
					t.Errorf("it was used for %v", used)
				}
				if n := f.asked[u.label]; c.last > within && n > 45*60 {
					t.Errorf("a database that is gone was asked %d times", n)
				}
			})
		})
	}
}

// An answer to a question from before a change is none to whoever asks after it.
func TestQuestionsOfBeforeAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCloud(t)
		u := f.register(t, time.Hour)
		old := &late{cloud: f, answer: make(chan bool)}
		s, err := NewServer(zone, old, 10)
		if err != nil {
			t.Fatal(err)
		}
		go s.load(t.Context(), u.label)
		synctest.Wait() // it has the answer, which is on its way
		f.remove(u.label)
		s.Forget(t.Context(), u.label)
		if _, err := s.load(t.Context(), u.label); !errors.Is(err, pseudonym.ErrNone) {
			t.Errorf("%v", err)
		}
		close(old.answer)
		synctest.Wait()
		if _, err := s.load(t.Context(), u.label); !errors.Is(err, pseudonym.ErrNone) {
			t.Errorf("after the late answer: %v", err)
		}
	})
}

// late is a source whose first answer is late.
type late struct {
	*cloud
	answer chan bool
	later  bool
}

func (l *late) Pseudonym(ctx context.Context, label pseudonym.Label) (*Entry, error) {
	e, err := l.cloud.Pseudonym(ctx, label)
	if !l.later {
		l.later = true
		<-l.answer
	}
	return e, err
}

// Somebody sets the clock of a sidecar. What it knows ends when it would have ended, by the time that passes.
func TestClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		f := newCloud(t)
		s, err := NewServer(zone, f, 10)
		if err != nil {
			t.Fatal(err)
		}
		const life = time.Hour
		u := f.register(t, life)
		f.entries[u.label].Left = int64(life / time.Second)
		begin := time.Now()
		at := func(after, by time.Duration) error {
			s.now = func() time.Time { return clocktest.Jump(t, begin.Add(after), by) }
			_, err := s.load(t.Context(), u.label)
			return err
		}
		for _, c := range []struct {
			after, by time.Duration
			asked     int
		}{{0, 0, 1}, {0, by, 1}, {life - time.Second, by, 1}, {life, by, 2}} {
			if err := at(c.after, c.by); err != nil || f.asked[u.label] != c.asked {
				t.Errorf("set by %v after %v: %v, asked %d times", by, c.after, err, f.asked[u.label])
			}
		}
		// It was asked for with a wrong clock: the source said how long it has.
		f.remove(u.label)
		if err := at(2*life-time.Second, by); err != nil {
			t.Errorf("set by %v: %v", by, err)
		}
		if err := at(2*life, by); !errors.Is(err, pseudonym.ErrNone) {
			t.Errorf("set by %v, after its end: %v", by, err)
		}
	}
}

// keeping is a source that keeps what it had.
type keeping struct {
	*cloud
	kept map[pseudonym.Label]*Entry
}

func (k *keeping) Kept(l pseudonym.Label) *Entry { return k.kept[l] }

// What a source has kept stands in while that has no answer, as long as what was known before does, and not a moment longer.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeping{newCloud(t), map[pseudonym.Label]*Entry{}}
		s, err := NewServer(zone, k, 10)
		if err != nil {
			t.Fatal(err)
		}
		u, never := k.register(t, time.Hour), pseudonym.NewLabel()
		k.kept[u.label] = k.entries[u.label]
		visit := func(l pseudonym.Label) error {
			_, err := s.Pseudonym(t.Context(), tls.ConnectionState{ServerName: zone.Name(l)})
			return err
		}
		away := errors.New("the database is gone")
		for _, c := range []struct {
			name string
			says error
			want error
		}{
			{"revoked", pseudonym.ErrNone, pseudonym.ErrNone},
			{"nobody is sure", ErrUnsure, ErrUnsure},
			{"the database is gone", away, nil},
			{"it is back: revoked", pseudonym.ErrNone, pseudonym.ErrNone},
			{"the database is gone again", away, nil},
			{"no store answers", ErrUnsure, ErrUnsure},
		} {
			k.gone = c.says
			time.Sleep(awayFor)
			for range 2 {
				if err := visit(u.label); !errors.Is(err, c.want) {
					t.Errorf("%s: %v", c.name, err)
				}
			}
			if err := visit(never); !errors.Is(err, c.says) {
				t.Errorf("%s, of nobody: %v", c.name, err)
			}
		}
		k.gone, k.asked[u.label] = away, 0
		for range 10 {
			if err := visit(u.label); err != nil {
				t.Error(err)
			}
		}
		if k.asked[u.label] != 1 {
			t.Errorf("a database that is gone was asked %d times", k.asked[u.label])
		}
		time.Sleep(time.Hour)
		if err := visit(u.label); !errors.Is(err, away) {
			t.Errorf("after its end: %v", err)
		}
	})
}
