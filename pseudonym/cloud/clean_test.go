package cloud

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/database"
)

// day is 24 hours.
const day = 24 * time.Hour

// broom is a cloud whose cleaner has a clock that the test sets.
type broom struct {
	*Cloud
	o      Options
	now    time.Time // of the clock
	uptime time.Duration
	said   *bytes.Buffer
}

func newBroom(t *testing.T) *broom {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cloud")
	if err := Create(dir, testZone, time.Now()); err != nil {
		t.Fatal(err)
	}
	b := &broom{now: time.Now().Round(0), said: &bytes.Buffer{}}
	b.o = Options{Zone: testZone, Dir: dir, Database: filepath.Join(dir, "pseudonyms.db"), Stores: []string{"127.0.0.1:1"}, Life: 90 * day, Most: 100, Log: slog.New(slog.NewTextHandler(b.said, nil))}
	b.open(t)
	if err := b.db.AddTenant(t.Context(), database.Tenant{Site: benchSite, Addresses: []string{"127.0.0.1:1"}, Client: ca.KeyID{7}, Created: b.now}); err != nil {
		t.Fatal(err)
	}
	return b
}

// open starts the store, again if it ran. What it counted in memory is lost.
func (b *broom) open(t *testing.T) {
	t.Helper()
	if b.Cloud != nil {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if b.Cloud, err = Open(context.Background(), b.o, Parts{Store: true}); err != nil {
		t.Fatal(err)
	}
	open := b.Cloud
	t.Cleanup(func() {
		if b.Cloud == open {
			open.Close()
		}
	})
	b.uptime = 0
	b.cleaner.clock, b.cleaner.uptime = func() time.Time { return b.now }, func() time.Duration { return b.uptime }
}

// run lets the store run for a while, in which it cleans each hour.
func (b *broom) run(t *testing.T, d time.Duration) {
	t.Helper()
	for range d / cleanEvery {
		b.once(t)
		b.now, b.uptime = b.now.Add(cleanEvery), b.uptime+cleanEvery
	}
	b.once(t)
}

func (b *broom) once(t *testing.T) {
	t.Helper()
	if err := b.cleaner.once(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *broom) register(t *testing.T, site string, o pseudonym.Owner) pseudonym.Label {
	t.Helper()
	r, err := b.store.Register(t.Context(), site, ca.KeyID(append(o[:], o[:]...)), o)
	if err != nil {
		t.Fatal(err)
	}
	l, _ := testZone.Label(r.Name)
	return l
}

// end has a pseudonym end at a time.
func (b *broom) end(t *testing.T, l pseudonym.Label, at time.Time) {
	t.Helper()
	p, err := b.db.Get(t.Context(), l)
	if err == nil {
		err = b.db.Renew(t.Context(), l, p.Certificate, at)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (b *broom) has(t *testing.T, l pseudonym.Label, want bool) {
	t.Helper()
	if _, err := b.db.Get(t.Context(), l); (err == nil) != want || !want && !errors.Is(err, pseudonym.ErrNone) {
		t.Errorf("on %v: %v, want it: %v", b.now, err, want)
	}
}

func TestCleanAfterAMonth(t *testing.T) {
	b := newBroom(t)
	l := b.register(t, benchSite, pseudonym.NewOwner())
	b.end(t, l, b.now)
	b.run(t, 29*day)
	b.has(t, l, true)
	b.run(t, 2*day)
	b.has(t, l, false)
	if b.said.Len() > 0 && strings.Contains(b.said.String(), "WARN") {
		t.Errorf("it warned: %s", b.said)
	}
}

// A clock that jumps ahead deletes nothing, also if the store starts again meanwhile, and is said once.
func TestCleanWithAClockAhead(t *testing.T) {
	for name, jump := range map[string]time.Duration{"within the certificate": 400 * day, "beyond it": 3000 * day} {
		t.Run(name, func(t *testing.T) {
			b := newBroom(t)
			live, ended := b.register(t, benchSite, pseudonym.NewOwner()), b.register(t, benchSite, pseudonym.NewOwner())
			b.end(t, ended, b.now)
			b.run(t, day)
			b.now = b.now.Add(jump)
			b.run(t, 2*day)
			b.open(t)
			b.run(t, 2*day)
			for range 50 { // as often as it likes
				b.open(t)
				b.once(t)
			}
			b.has(t, live, true)
			b.has(t, ended, true)
			if n := strings.Count(b.said.String(), "the clock is "); n < 2 || n > 52 {
				t.Errorf("said %d times by 52 processes", n)
			}
			if s := b.Status(); jump < 500*day && s.ClockAhead < int64(300*day/time.Second) {
				t.Errorf("status says %d seconds", s.ClockAhead)
			}
			b.now = b.now.Add(-jump)
			b.run(t, day)
			if ahead, err := CheckClock(t.Context(), b.o, b.db, b.now); err != nil || ahead > 4*day {
				t.Errorf("when it is right again it is %v ahead, %v", ahead, err)
			}
			b.run(t, 30*day)
			b.has(t, live, true)
			b.has(t, ended, false)
		})
	}
}

// After a long pause it deletes later, and then in time again.
func TestCleanAfterAPause(t *testing.T) {
	b := newBroom(t)
	l := b.register(t, benchSite, pseudonym.NewOwner())
	b.end(t, l, b.now)
	b.run(t, day)
	b.now = b.now.Add(60 * day)
	b.open(t)
	b.run(t, day)
	b.has(t, l, true)
	if ahead, err := CheckClock(t.Context(), b.o, b.db, b.now); err != nil || ahead < 50*day {
		t.Errorf("%v, %v", ahead, err)
	}
	b.run(t, 60*day)
	b.has(t, l, false)
	if ahead, err := CheckClock(t.Context(), b.o, b.db, b.now); err != nil || ahead > time.Hour {
		t.Errorf("%v, %v", ahead, err)
	}
}

// Two stores of one database count no faster than one.
func TestTwoStoresCountOnce(t *testing.T) {
	b := newBroom(t)
	b.once(t)
	other := b.newCleaner()
	other.clock, other.uptime = b.cleaner.clock, b.cleaner.uptime
	begin := b.now
	b.now = b.now.Add(300 * day)
	for range 24 {
		b.now, b.uptime = b.now.Add(cleanEvery), b.uptime+cleanEvery
		b.once(t)
		if err := other.once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if counted, err := b.db.Counted(t.Context()); err != nil || counted.Sub(begin) > catchUp*25*time.Hour {
		t.Errorf("%v in a day, %v", counted.Sub(begin), err)
	}
}

// A store that read the time before another one wrote it does not set it back, and goes by the later one.
func TestTwoStoresCountAtOnce(t *testing.T) {
	b := newBroom(t)
	b.once(t)
	fast, err := b.db.Counted(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fast = fast.Add(2 * cleanEvery)
	b.now = b.now.Add(day)
	b.cleaner.uptime = func() time.Duration { // it is asked after the time was read
		if _, err := b.db.Advance(t.Context(), fast, b.now); err != nil {
			t.Error(err)
		}
		return 0
	}
	b.once(t)
	if got, err := b.db.Counted(t.Context()); err != nil || !got.Equal(fast) || !b.cleaner.counted.Equal(fast) {
		t.Errorf("the database has %v, and the store %v; want %v (%v)", got, b.cleaner.counted, fast, err)
	}
}

// A person whose pseudonym of the store ended can renew her others, which live on.
func TestEntranceLivesOn(t *testing.T) {
	for name, left := range map[string]time.Duration{"soon": 10 * day, "over": -5 * day} {
		t.Run(name, func(t *testing.T) {
			b, owner, gone := newBroom(t), pseudonym.NewOwner(), pseudonym.NewOwner()
			entrance, site := b.register(t, testZone.Store(), owner), b.register(t, benchSite, owner)
			alone := b.register(t, testZone.Store(), gone) // of somebody who has no other
			b.end(t, entrance, b.now.Add(left))
			b.end(t, alone, b.now.Add(left))
			if _, err := (storeSource{b.Cloud}).Pseudonym(t.Context(), entrance); (err == nil) != (left > 0) {
				t.Errorf("before: %v", err)
			}
			b.once(t)
			e, err := (storeSource{b.Cloud}).Pseudonym(t.Context(), entrance)
			if err != nil || e.Expires.Before(b.now.Add(300*day)) || e.Client != ca.KeyID(append(owner[:], owner[:]...)) {
				t.Fatalf("%+v, %v", e, err)
			}
			if _, err := b.store.Renew(t.Context(), testZone.Name(site), owner); err != nil {
				t.Error(err)
			}
			if p, err := b.db.Get(t.Context(), alone); err != nil || p.Expires.After(b.now.Add(left)) {
				t.Errorf("one without others lives on: %v, %v", p.Expires, err)
			}
		})
	}
}

// Outside the time of the issuing certificate nothing changes, and people are told.
func TestCleanOutsideTheCertificate(t *testing.T) {
	for name, c := range map[string]struct {
		at    func(*cleaner) time.Time
		ahead bool
	}{
		"before": {func(c *cleaner) time.Time { return c.from.Add(-day) }, false},
		"after":  {func(c *cleaner) time.Time { return c.until.Add(day) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroom(t)
			b.once(t)
			want := b.cleaner.counted
			b.now = c.at(b.cleaner)
			b.once(t)
			if got, err := b.db.Counted(t.Context()); err != nil || !got.Equal(want) {
				t.Errorf("the counted time went from %v to %v, %v", want, got, err)
			}
			if s := b.Status(); (s.ClockAhead > int64(300*day/time.Second)) != c.ahead || s.ClockAhead < 0 {
				t.Errorf("status says %d seconds", s.ClockAhead)
			}
			if !strings.Contains(b.said.String(), "outside the time of the issuing certificate") {
				t.Errorf("it said %s", b.said)
			}
			if _, err := CheckClock(t.Context(), b.o, b.db, b.now); err == nil || errors.Is(err, ca.ErrClock) == c.ahead {
				t.Errorf("the check says %v", err)
			}
		})
	}
}

// The counted time begins with the clock where there is nothing to lose. It is never before the begin of the issuing certificate, and a
// check of the clock goes by both.
func TestCountingBegins(t *testing.T) {
	b := newBroom(t)
	counts := func(what string, want time.Time) {
		t.Helper()
		b.once(t)
		if got, err := b.db.Counted(t.Context()); err != nil || !got.Equal(want.Truncate(time.Second)) {
			t.Errorf("%s: %v, want %v (%v)", what, got, want, err)
		}
	}
	checks := func(what string, want time.Duration) {
		t.Helper()
		if ahead, err := CheckClock(t.Context(), b.o, b.db, b.now); err != nil || ahead.Round(time.Minute) != want {
			t.Errorf("%s: %v ahead, want %v (%v)", what, ahead, want, err)
		}
	}
	b.now = b.now.Add(10 * day)
	checks("nothing is counted", 0)
	counts("a new database", b.now)
	checks("it was counted just now", 0)
	b.now = b.now.Add(-day)
	checks("the clock is behind", 0)

	long := b.cleaner.from.Add(-100 * day) // before the operator signed again
	if _, err := b.db.Advance(t.Context(), long, long); err != nil {
		t.Fatal(err)
	}
	b.now = b.cleaner.from.Add(3 * day)
	checks("a store that was away for long", 3*day)
	b.open(t)
	counts("a store that was away for long", b.cleaner.from)
}

// Used proofs of work are forgotten by the clock.
func TestCleanForgetsProofs(t *testing.T) {
	b, proof := newBroom(t), []byte("proof")
	b.once(t)
	if err := b.db.Spend(t.Context(), proof, b.now.Add(day)); err != nil {
		t.Fatal(err)
	}
	b.once(t)
	if err := b.db.Spend(t.Context(), proof, b.now); !errors.Is(err, database.ErrExists) {
		t.Errorf("it was forgotten too early: %v", err)
	}
	b.now = b.now.Add(2 * day)
	b.once(t)
	if err := b.db.Spend(t.Context(), proof, b.now); err != nil {
		t.Error(err)
	}
}

// All entrances that end soon are prolonged, as long as there is something to gain, and the rest of the work waits for the one that fails.
func TestWhichEntrancesLiveOn(t *testing.T) {
	b := newBroom(t)
	entrance := func(left time.Duration) pseudonym.Label {
		o := pseudonym.NewOwner()
		b.register(t, benchSite, o)
		l := b.register(t, testZone.Store(), o)
		b.end(t, l, b.now.Add(left))
		return l
	}
	asked := map[pseudonym.Label]int{}
	b.cleaner.batch = 2
	b.cleaner.until = b.now.Add(prolongBefore + 10*day)
	b.cleaner.prolong = func(ctx context.Context, p database.Pseudonym) error {
		asked[p.Label]++
		return b.db.Renew(ctx, p.Label, p.Certificate, b.now.Add(40*day))
	}
	want := map[pseudonym.Label]int{}
	for i := range 5 {
		want[entrance(time.Duration(i-2)*day)] = 1
	}
	entrance(11 * day) // ends with the issuing certificate
	b.once(t)
	if !maps.Equal(asked, want) {
		t.Errorf("%v, want %v", asked, want)
	}

	l := entrance(day)
	b.cleaner.prolong = func(context.Context, database.Pseudonym) error { asked[l]++; return nil }
	b.cleaner.batch = 1
	b.once(t) // it ends, though there is always one more
	if asked[l] != mostBatches {
		t.Errorf("asked %d times for one that gains nothing", asked[l])
	}
	failed := errors.New("the certificate cannot be made")
	b.cleaner.prolong = func(context.Context, database.Pseudonym) error { return failed }
	if err := b.cleaner.once(t.Context()); !errors.Is(err, failed) {
		t.Errorf("it fails with %v", err)
	}
}

// It looks at once, and then every hour.
func TestCleansEveryHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		c := &cleaner{log: slog.New(slog.DiscardHandler), clock: func() time.Time { looks++; return time.Unix(1, 0) }} // outside the time of its certificate
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() { defer close(ended); c.keep(ctx) }()
		time.Sleep(3*time.Hour + time.Minute)
		synctest.Wait()
		if looks != 4 {
			t.Errorf("it looked %d times in three hours", looks)
		}
		cancel()
		<-ended
	})
}

// A key of a clock that was ahead goes away with it: there is one in DNS again at once, and not in a year.
func TestHellosOfAClockAhead(t *testing.T) {
	h, db := process(t, filepath.Join(t.TempDir(), "pseudonyms.db"), sealOf(t, 1))
	now := time.Unix(int64(helloPeriod/time.Second)*20_000, 0)
	for _, at := range []time.Time{now, now.Add(365 * day), now.Add(366 * day), now.Add(time.Hour)} {
		if err := h.look(t.Context(), db, at); err != nil {
			t.Fatal(err)
		}
	}
	if list := h.published(now.Add(time.Hour + helloAfter)); list == nil || !opens(h, list) {
		t.Errorf("in DNS: %x", list)
	}
	if keys, err := db.Hellos(t.Context(), sealOf(t, 1)); err != nil || keys[0].Created.After(now.Add(time.Hour)) {
		t.Errorf("%v, %v", keys, err)
	}
}
