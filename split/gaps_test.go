package split

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"heddle/schedule"
)

// carriedBy sends a datagram every 5 ms, until the time is over and starting at from, and gives when the path changed.
func carriedBy(t *testing.T, f *Session, paths []*fakePath, began time.Time, from, until time.Duration) (changes []string) {
	t.Helper()
	last := -1
	for at := from; at < until; at += 5 * time.Millisecond {
		time.Sleep(at - time.Since(began))
		if err := f.Send(numbered(0, 1)); err != nil {
			t.Fatal(err)
		}
		for i, p := range paths {
			if n := len(p.take()); n > 0 && i != last {
				last, changes = i, append(changes, fmt.Sprintf("%v: %d", at, i))
			}
		}
	}
	return changes
}

func TestSwitchWaitsForAGapWhereAsked(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		gaps        time.Duration
		pause       [2]time.Duration // nothing is sent between the two
		heard       time.Duration    // when the server talks during the pause; 0 for never
		dead        bool             // the path goes away at the pause
		want, after []string
	}{
		"not asked for":             {0, [2]time.Duration{180 * ms, 210 * ms}, 0, false, []string{"0s: 0", "100ms: 1"}, []string{"210ms: 0"}},
		"busy: twice the unit":      {20 * ms, [2]time.Duration{280 * ms, 285 * ms}, 0, false, []string{"0s: 0", "200ms: 1"}, []string{"285ms: 1", "400ms: 0"}},
		"a gap ends the unit":       {20 * ms, [2]time.Duration{120 * ms, 140 * ms}, 0, false, []string{"0s: 0"}, []string{"140ms: 1"}},
		"a gap before it is over":   {20 * ms, [2]time.Duration{50 * ms, 90 * ms}, 0, false, []string{"0s: 0"}, []string{"90ms: 0", "200ms: 1"}},
		"too short a gap":           {20 * ms, [2]time.Duration{120 * ms, 130 * ms}, 0, false, []string{"0s: 0"}, []string{"130ms: 0", "200ms: 1"}},
		"the server talks meantime": {20 * ms, [2]time.Duration{120 * ms, 140 * ms}, 130 * ms, false, []string{"0s: 0"}, []string{"140ms: 0", "200ms: 1"}},
		"no wait on a dead path":    {90 * ms, [2]time.Duration{10 * ms, 110 * ms}, 105 * ms, true, []string{"0s: 0"}, []string{"110ms: 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, paths := newFake(t, 2, func(o *Options) {
					o.Schedule.Every, o.AtGaps, o.MinPaths = schedule.Every{Period: 100 * ms}, c.gaps, 1
				})
				began := time.Now()
				before := carriedBy(t, f, paths, began, 0, c.pause[0])
				if c.heard > 0 {
					time.Sleep(c.heard - time.Since(began))
					paths[1].put(fakeServer, []byte("data"))
					synctest.Wait()
				}
				if c.dead {
					f.members[0].Health.Fail("the device is gone")
					f.mu.Lock()
					f.judge(f.now())
					f.mu.Unlock()
				}
				after := carriedBy(t, f, paths, began, c.pause[1], 450*ms)
				if !slices.Equal(before, c.want) || len(after) < len(c.after) || !slices.Equal(after[:len(c.after)], c.after) {
					t.Errorf("paths changed at %v, then %v; want %v, then %v", before, after, c.want, c.after)
				}
			})
		})
	}
}

func TestFirstUnitLastsUntilTheSessionHasSettled(t *testing.T) {
	for _, every := range []schedule.Every{{Packets: 5}, {Period: 25 * time.Millisecond}} {
		t.Run(every.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, paths := newFake(t, 2, func(o *Options) {
					o.Schedule.Every, o.Schedule.Settle = every, 300*time.Millisecond
				})
				got := carriedBy(t, f, paths, time.Now(), 0, 350*time.Millisecond)
				if want := []string{"0s: 0", "300ms: 1", "325ms: 0"}; !slices.Equal(got, want) {
					t.Errorf("paths changed at %v, want %v", got, want)
				}
			})
		})
	}
}

func TestRoundTripTimeIsThatOfAnAnswerAfterQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := newFake(t, 1, nil)
		for _, step := range []struct{ quiet, answer, want time.Duration }{
			{time.Second, 30 * time.Millisecond, 30 * time.Millisecond},
			{10 * time.Millisecond, time.Millisecond, 30 * time.Millisecond}, // it may answer something older
			{time.Second, 110 * time.Millisecond, 40 * time.Millisecond},
		} {
			time.Sleep(step.quiet)
			f.Send(numbered(0, 1))
			time.Sleep(step.answer)
			paths[0].put(fakeServer, []byte("answer"))
			synctest.Wait()
			if got := f.Status("relay").Paths[0].RTT; got != step.want {
				t.Errorf("an answer after %v: the round trip takes %v, want %v", step.answer, got, step.want)
			}
		}
	})
}
