package split

import (
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/clienthello"
	"heddle/path"
	"heddle/schedule"
)

// shook is a QUIC handshake whose server is so many milliseconds away, and the first packet after it.
func shook(rtt int) []moment {
	const first, id, server = "original", "client", "server"
	return []moment{{ms: 0, up: initial(first, id)}, {ms: rtt, down: slices.Concat(longPacket(1, clienthello.KindInitial, id, server, 1000), shaking(id, server))},
		{ms: rtt + 1, up: slices.Concat(shaking(server, id), shortPacket(server))}, {ms: 2*rtt + 1, down: shortPacket(id)}, {ms: 2*rtt + 2, up: shortPacket(server)}}
}

func every(period time.Duration) func(*Options) {
	return func(o *Options) { o.Schedule.Every = schedule.Every{Period: period} }
}

func TestStatusSaysThatTheServerDoesNotAnswer(t *testing.T) {
	again := func(ms int) moment { return moment{ms: ms, up: shortPacket("server")} }
	heard := func(ms int) moment { return moment{ms: ms, down: shortPacket("client")} }
	retried := append(shook(20), again(300), again(800), again(1600))
	plain := []moment{{up: []byte("a")}, {ms: 20, down: []byte("b")}, {ms: 30, up: []byte("a")}, {ms: 800, up: []byte("a")}, {ms: 1600, up: []byte("a")}}
	refusal := &path.Unreachable{Errno: syscall.ECONNREFUSED, By: fakeServer.Addr()}
	for name, c := range map[string]struct {
		change  func(*Options)
		moments []moment
		fails   error
		want    string // the warning begins with this; "" for no warning
		hint    bool
	}{
		"repeats, and hears nothing":   {every(10 * time.Millisecond), retried, nil, "the server does not answer: nothing comes back", true},
		"units of packets":             {nil, retried, nil, "the server does not answer: nothing comes back", true},
		"long units":                   {every(longUnit), retried, nil, "the server does not answer: nothing comes back", false},
		"no switches":                  {func(o *Options) { o.Schedule.Every = schedule.Every{} }, retried, nil, "the server does not answer: nothing comes back", false},
		"answered in the end":          {every(10 * time.Millisecond), append(slices.Clone(retried), heard(1700)), nil, "", false},
		"one datagram after a silence": {every(10 * time.Millisecond), append(shook(20), heard(60), again(5000)), nil, "", false},
		"the program has ended":        {every(10 * time.Millisecond), shook(20), nil, "", false},
		"not QUIC":                     {every(10 * time.Millisecond), plain, nil, "", false},
		"refused":                      {every(10 * time.Millisecond), append(shook(20), again(60)), refusal, "the server does not answer: nothing listens on that port, says " + fakeServer.Addr().String(), true},
		"not QUIC, and refused":        {every(10 * time.Millisecond), plain, refusal, "the server does not answer: nothing listens", false},
		"refused by somebody else":     {every(10 * time.Millisecond), shook(20), &path.Unreachable{Errno: syscall.ECONNREFUSED, By: netip.MustParseAddr("203.0.113.1")}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := play(t, c.change, c.moments)
				if c.fails != nil {
					s.members[1].Current().Flow.(*fakeFlow).failed <- c.fails
				}
				time.Sleep(tendEvery)
				synctest.Wait()
				got := strings.Join(s.Status("relay").Warnings, "\n")
				if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) || strings.Contains(got, "--every 500ms") != c.hint {
					t.Errorf("warnings %q", got)
				}
			})
		})
	}
}

func TestAutoGivesTheServerTimeToValidate(t *testing.T) {
	for rtt, want := range map[int]time.Duration{20: schedule.AutoPeriod, 200: 600 * time.Millisecond, 900: autoLongest} {
		synctest.Test(t, func(t *testing.T) {
			_, s := play(t, func(o *Options) { o.Schedule.Every = schedule.Every{Period: schedule.AutoPeriod, Auto: true} }, shook(rtt))
			if got := s.Status("relay").Every; got != want.String() {
				t.Errorf("at %d ms units of %s, want %v", rtt, got, want)
			}
			if got := s.sched.End().Sub(s.lastSent); want > schedule.AutoPeriod && got != want {
				t.Errorf("at %d ms the first unit after the handshake lasts %v, want %v", rtt, got, want)
			}
		})
	}
}

// A session that rarely changes its path may have short units, but not too short for the server.
func TestAutoGivesTheServerTimeWhereChangesAreRare(t *testing.T) {
	f, _ := newFake(t, 2, func(o *Options) {
		o.Schedule = schedule.Config{Name: "weighted", Weights: []float64{99, 1}, Every: schedule.Every{Period: schedule.AutoPeriod, Auto: true}}
	})
	f.mu.Lock()
	f.auto.rtt = 100 * time.Millisecond
	f.lengthen()
	f.mu.Unlock()
	if got := f.Status("relay").Every; got != "300ms" {
		t.Errorf("units of %s", got)
	}
}
