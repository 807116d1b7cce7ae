package split

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"heddle/schedule"
)

// acks makes datagrams of a client's QUIC session after the handshake, named by the letters.
func acks(letters string) (all [][]byte) {
	for _, letter := range letters {
		all = append(all, []byte{0x40, byte(letter)})
	}
	return all
}

// letters reads datagrams of [acks].
func letters(sent [][]byte) string {
	var b bytes.Buffer
	for _, d := range sent {
		b.WriteByte(d[1])
	}
	return b.String()
}

// downloading makes a session that switches every 100 ms between n paths and has downloaded by the first of them.
func downloading(t *testing.T, n int, change func(*Options)) (*Session, []*fakePath) {
	f, paths := newFake(t, n, func(o *Options) {
		o.Schedule.Every, o.Drain = schedule.Every{Period: 100 * time.Millisecond}, 250*time.Millisecond
		if change != nil {
			change(o)
		}
	})
	if err := f.Send(acks("a")); err != nil {
		t.Fatal(err)
	}
	serve(paths[0], drainLeast)
	paths[0].take()
	time.Sleep(100 * time.Millisecond)
	return f, paths
}

// serve makes so many bytes of the server arrive on a path.
func serve(p *fakePath, size int) {
	for range size / 1024 {
		p.put(fakeServer, make([]byte, 1024))
		synctest.Wait()
	}
}

func wantSent(t *testing.T, when string, paths []*fakePath, want ...string) {
	t.Helper()
	for i, p := range paths {
		if got := letters(p.take()); got != want[i] {
			t.Errorf("%s: path %d carries %q, want %q", when, i, got, want[i])
		}
	}
}

func TestDrainHoldsUntilTheServerFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := downloading(t, 2, nil)
		f.Send(acks("bcd"))
		wantSent(t, "after the switch", paths, "", "b")
		serve(paths[0], 1024)
		f.Send(acks("e"))
		time.Sleep(20 * time.Millisecond)
		wantSent(t, "while the server sends by the old path", paths, "", "")
		serve(paths[1], 1024)
		f.Send(acks("f"))
		wantSent(t, "before the client may have answered", paths, "", "")
		time.Sleep(answering)
		synctest.Wait()
		wantSent(t, "after its answer", paths, "", "fcde")
		f.Send(acks("g"))
		wantSent(t, "afterwards", paths, "", "g")
	})
}

func TestDrainEndsWithoutTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		longest, wait time.Duration
		then          [][]byte
		want          []string
	}{
		"in time":             {50 * time.Millisecond, 50 * time.Millisecond, nil, []string{"", "dc"}},
		"at the next switch":  {250 * time.Millisecond, 100 * time.Millisecond, acks("e"), []string{"dce", ""}},
		"at another protocol": {250 * time.Millisecond, time.Millisecond, [][]byte{{0xc0, 'e'}}, []string{"", "dce"}},
		"at a full memory":    {250 * time.Millisecond, time.Millisecond, acks(string(bytes.Repeat([]byte{'x'}, heldLimit-2))), []string{"", "xcd" + string(bytes.Repeat([]byte{'x'}, heldLimit-3))}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, paths := downloading(t, 2, func(o *Options) { o.Drain = c.longest })
				f.Send(acks("bcd"))
				wantSent(t, "after the switch", paths, "", "b")
				time.Sleep(c.wait)
				synctest.Wait()
				f.Send(c.then)
				wantSent(t, "later", paths, c.want...)
			})
		})
	}
}

func TestDrainIsForDownloadsOfQUICBetweenAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		before func(*testing.T, *Session, []*fakePath)
		sent   [][]byte
	}{
		"off":        {change: func(o *Options) { o.Drain = 0 }},
		"WireGuard":  {sent: [][]byte{{4, 'b'}, {4, 'c'}, {4, 'd'}}},
		"handshakes": {sent: [][]byte{{0xc0, 'b'}, {0xc0, 'c'}, {0xc0, 'd'}}},
		"an upload": {before: func(t *testing.T, f *Session, paths []*fakePath) {
			f.Send([][]byte{make([]byte, drainLeast)})
			paths[1].take()
			serve(paths[1], 2*drainLeast)
			time.Sleep(100 * time.Millisecond)
		}},
		"a quiet session": {before: func(t *testing.T, f *Session, paths []*fakePath) {
			f.Send(acks("x"))
			serve(paths[1], drainLeast/2)
			time.Sleep(100 * time.Millisecond)
		}},
		"one exit": {before: func(t *testing.T, f *Session, paths []*fakePath) { paths[0].exit, paths[1].exit = "proxy", "proxy" }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, paths := downloading(t, 2, c.change)
				if c.before != nil {
					c.before(t, f, paths)
				}
				if c.sent == nil {
					c.sent = acks("bcd")
				}
				paths[0].take()
				paths[1].take()
				f.Send(c.sent)
				if got := letters(slices.Concat(paths[0].take(), paths[1].take())); got != "bcd" {
					t.Errorf("%q is sent at once, want all", got)
				}
			})
		})
	}
}

func TestDrainedDatagramsEndWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := downloading(t, 2, nil)
		f.Send(acks("bcd"))
		f.Close()
		time.Sleep(time.Second)
		wantSent(t, fmt.Sprint("after ", time.Second), paths, "", "b")
		if f.drain.held != nil {
			t.Errorf("%d datagrams are held", len(f.drain.held))
		}
	})
}

func TestAutoLengthensUnitsByTheRoundTrip(t *testing.T) {
	for name, c := range map[string]struct {
		paths    int
		every    schedule.Every
		followed time.Duration // after the switch; 0 for never
		want     time.Duration
	}{
		"near":             {2, schedule.Every{Period: schedule.AutoPeriod, Auto: true}, 5 * time.Millisecond, 100 * time.Millisecond},
		"farther":          {2, schedule.Every{Period: schedule.AutoPeriod, Auto: true}, 20 * time.Millisecond, 350 * time.Millisecond},
		"very far":         {2, schedule.Every{Period: schedule.AutoPeriod, Auto: true}, 90 * time.Millisecond, time.Second},
		"beyond a unit":    {3, schedule.Every{Period: schedule.AutoPeriod, Auto: true}, 0, 150 * time.Millisecond},
		"beyond, and back": {2, schedule.Every{Period: schedule.AutoPeriod, Auto: true}, 0, 150 * time.Millisecond},
		"not asked for":    {2, schedule.Every{Period: schedule.AutoPeriod}, 20 * time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, paths := downloading(t, c.paths, func(o *Options) {
					o.Schedule.Every = c.every
					if c.every.Auto {
						o.Drain = 0
					}
				})
				f.Send(acks("b"))
				if c.followed > 0 {
					time.Sleep(c.followed)
					serve(paths[1], 1024)
				} else {
					serve(paths[0], drainLeast) // it did not follow
					time.Sleep(100 * time.Millisecond)
					f.Send(acks("cd"))
					if got := letters(paths[0].take()); c.paths == 2 && got != "cd" {
						t.Errorf("%q is sent at once where the server is still", got)
					}
				}
				if got := f.Status("relay").Every; got != c.want.String() {
					t.Errorf("units of %s, want %v", got, c.want)
				}
			})
		})
	}
}
