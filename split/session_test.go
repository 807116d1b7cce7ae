package split

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"heddle/path"
	"heddle/schedule"
)

func numbered(first, n int) [][]byte {
	var out [][]byte
	for i := range n {
		out = append(out, binary.BigEndian.AppendUint32(nil, uint32(first+i)))
	}
	return out
}

// lengths of runs on one path, from the numbers of the datagrams that each path carried.
func runs(paths []*fakePath) []int {
	by := map[uint32]int{}
	for i, p := range paths {
		for _, d := range p.take() {
			by[binary.BigEndian.Uint32(d)] = i
		}
	}
	var out []int
	last := -1
	for k := range uint32(len(by)) {
		if by[k] != last {
			out = append(out, 0)
			last = by[k]
		}
		out[len(out)-1]++
	}
	return out
}

func TestBatchesAreExactAcrossBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seed = 4
		f, paths := newFake(t, 3, func(o *Options) { o.Schedule.Every = schedule.Every{Packets: 50} })
		rng := rand.New(rand.NewPCG(seed, seed))
		total := 0
		for total < 5000 {
			n := 1 + rng.IntN(128)
			if err := f.Send(numbered(total, n)); err != nil {
				t.Fatal(err)
			}
			total += n
		}
		all := runs(paths)
		for i, n := range all[:len(all)-1] {
			if n != 50 {
				t.Fatalf("seed %d: batch %d holds %d packets: %v", seed, i, n, all)
			}
		}
	})
}

func TestTooFewPathsSendNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := newFake(t, 3, func(o *Options) { o.MinPaths = 2 })
		gone := &path.Error{What: "path", Why: "the device is gone"}
		paths[0].breaks(gone)
		time.Sleep(time.Second)
		f.Send(numbered(0, 10))
		if n := len(paths[0].take()); n != 0 {
			t.Errorf("%d packets on the dead path", n)
		}
		if n := len(paths[1].take()) + len(paths[2].take()); n != 10 {
			t.Errorf("%d packets on the two that live, want 10", n)
		}
		paths[1].breaks(gone)
		time.Sleep(time.Second)
		f.Send(numbered(0, 10))
		for i, p := range paths {
			if n := len(p.take()); n != 0 {
				t.Errorf("%d packets on path %d although only one path lives", n, i)
			}
		}
		s := f.Status("relay")
		if s.State != "stopped" || !strings.Contains(s.Why, "1 of 2") || !strings.Contains(s.Why, "the device is gone") || s.Refused != 10 {
			t.Errorf("status %s, refused %d, why %q", s.State, s.Refused, s.Why)
		}
		paths[1].breaks(nil)
		time.Sleep(time.Second)
		f.Send(numbered(0, 10))
		if n := len(paths[1].take()) + len(paths[2].take()); n != 10 || f.Status("relay").State != "running" {
			t.Errorf("%d packets after a path came back, state %s", n, f.Status("relay").State)
		}
	})
}

func TestDegradePermitsFewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := newFake(t, 2, func(o *Options) { o.Degrade = true })
		paths[0].breaks(&path.Error{Why: "gone"})
		time.Sleep(time.Second)
		f.Send(numbered(0, 5))
		if n := len(paths[1].take()); n != 5 {
			t.Errorf("%d packets on the path that is left", n)
		}
	})
}

func TestSilentPathIsLeftAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := newFake(t, 3, nil)
		talk := func(d time.Duration, answer ...int) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				f.Send(numbered(0, 3))
				for _, i := range answer {
					paths[i].put(fakeServer, []byte("answer"))
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		talk(time.Second, 0, 1, 2)
		talk(6*time.Second, 0, 1)
		if state, _ := f.members[2].Health.State(); state != path.Silent {
			t.Fatalf("the path that answers nothing is %s", state)
		}
		paths[2].take()
		talk(40*time.Second, 0, 1)
		if n := len(paths[2].take()); n < 40 || n > 40*trialLimit {
			t.Errorf("%d packets were risked on a silent path in 40 s, want 1 to %d a second", n, trialLimit)
		}
		talk(20*time.Second, 0, 1, 2)
		if state, _ := f.members[2].Health.State(); state != path.Up {
			t.Errorf("the path that answers again is %s", state)
		}
	})
}

func TestFirstUnitDoesNotWaitOnADeadPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := newFake(t, 3, func(o *Options) { o.Schedule.Every = schedule.Every{Period: time.Minute} })
		for range 4 { // as a QUIC client asks again that was not answered
			f.Send(numbered(0, 2))
			time.Sleep(500 * time.Millisecond)
		}
		if a, b := len(paths[0].take()), len(paths[1].take()); a == 0 || b == 0 {
			t.Errorf("in two seconds without an answer %d packets went by the first path and %d by the second", a, b)
		}
	})
}

func TestServerThatNeverAnswersIsSentToByAllPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := newFake(t, 3, nil)
		for range 600 {
			f.Send(numbered(0, 1))
			time.Sleep(100 * time.Millisecond)
		}
		for i, p := range paths {
			if n := len(p.take()); n < 150 {
				t.Errorf("%d of 600 packets went by path %d", n, i)
			}
		}
	})
}

func TestStrangersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := closedFake(t, 2, nil)
		if err := f.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		paths[0].put(netip.MustParseAddrPort("192.0.2.9:51820"), []byte("other address"))
		paths[0].put(netip.MustParseAddrPort("192.0.2.1:9"), []byte("other port"))
		paths[0].put(fakeServer, []byte("true"))
		into := make([]path.Inbound, 4)
		n, err := f.Receive(0, into)
		if err != nil || n != 1 || string(into[0].Data) != "true" {
			t.Fatalf("received %d, %v, %v", n, err, into[:n])
		}
		s := f.Status("relay")
		if s.Paths[0].Down.Dropped != 2 || s.Paths[0].Down.Packets != 1 {
			t.Errorf("counted %+v", s.Paths[0].Down)
		}
		if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "192.0.2.9:51820") {
			t.Errorf("warnings %q", s.Warnings)
		}
	})
}

// What others send neither proves a path nor keeps it up, however the kernel hands it over.
func TestStrangersProveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := newFake(t, 2, nil)
		paths[0].flow.arrived <- []path.Inbound{{Data: make([]byte, 10), Size: 4, From: netip.MustParseAddrPort("192.0.2.9:51820")}}
		synctest.Wait()
		p := f.Status("relay").Paths[0]
		if p.State != string(path.Unproven) || p.LastHeard != nil {
			t.Errorf("a stranger was heard, and the path is %s, last heard at %v", p.State, p.LastHeard)
		}
		if p.Down.Dropped != 3 || p.Down.Packets != 0 {
			t.Errorf("three datagrams in one are counted as %+v", p.Down)
		}
	})
}

// What a router says of a path, and what the server's answer says of it, counts at once.
func TestPathIsJudgedAsSoonAsItIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := newFake(t, 2, nil)
		running := func(want string) {
			t.Helper()
			synctest.Wait()
			if s := f.Status("relay"); s.State != want {
				t.Errorf("the session is %s (%s), want %s", s.State, s.Why, want)
			}
		}
		running("running")
		paths[1].flow.failed <- &path.Unreachable{By: netip.MustParseAddr("192.0.2.77"), Errno: unix.EHOSTUNREACH}
		running("stopped")
		if p := f.Status("relay").Paths[1]; p.State != string(path.Silent) || !strings.Contains(p.Why, "192.0.2.77") {
			t.Errorf("the path is %s (%s)", p.State, p.Why)
		}
		paths[1].put(fakeServer, []byte("data"))
		running("running")
	})
}

func TestDownlinkIsDrawnAlongWhenOnlyTheServerTalks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := newFake(t, 2, func(o *Options) { o.Schedule.Every = schedule.Every{Period: 100 * time.Millisecond} })
		f.setNudge(func() { f.Send([][]byte{[]byte("keepalive")}) })
		f.Send(numbered(0, 1))
		for range 5000 { // ten seconds of a server that talks, and a client that does not
			f.mu.Lock()
			current := f.current
			f.mu.Unlock()
			paths[current].put(fakeServer, []byte("data"))
			time.Sleep(2 * time.Millisecond)
		}
		a, b := len(paths[0].take()), len(paths[1].take())
		if a+b < 95 || a+b > 105 || a-b > 2 || b-a > 2 {
			t.Errorf("%d and %d packets went up, want one after each of 100 switches", a, b)
		}
		time.Sleep(time.Minute)
		if n := len(paths[0].take()) + len(paths[1].take()); n < 5 || n > 15 {
			t.Errorf("%d packets went up when the server fell silent, want a few", n)
		}
		time.Sleep(time.Minute)
		if n := len(paths[0].take()) + len(paths[1].take()); n != 0 {
			t.Errorf("%d packets went up while nobody talked", n)
		}
	})
}

func TestSilentDownlinkLeavesItsPath(t *testing.T) {
	for _, every := range []schedule.Every{{Period: 100 * time.Millisecond}, {Packets: 50}} {
		synctest.Test(t, func(t *testing.T) {
			f, paths := newFake(t, 2, func(o *Options) { o.Schedule.Every = every })
			f.setNudge(func() { f.Send([][]byte{[]byte("keepalive")}) })
			f.Send(numbered(0, 3))
			paths[0].put(fakeServer, []byte("data"))
			time.Sleep(2 * time.Second) // the path dies: the server goes on sending by it, and nothing arrives
			if n := len(paths[1].take()); n == 0 {
				t.Errorf("every %v: nothing told the server of the path that lives", every)
			}
		})
	}
}

func TestNoNudgeWhereTheSessionSpeaksItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := newFake(t, 2, func(o *Options) { o.Schedule.Every = schedule.Every{Packets: 10} })
		nudges := 0
		f.setNudge(func() { nudges++ })
		for i := range 200 {
			f.Send(numbered(i, 1))
			paths[0].put(fakeServer, []byte("data"))
			time.Sleep(500 * time.Microsecond)
		}
		if nudges != 0 {
			t.Errorf("%d keep-alives beside a busy uplink", nudges)
		}
	})
}

func TestSharedObserverIsWarnedOf(t *testing.T) {
	f, _ := closedFake(t, 2, func(o *Options) {
		for _, s := range o.Via {
			p, _ := fakes.Load(s.Arg)
			p.(*fakePath).share = "if:eth0"
		}
	})
	s := f.Status("relay")
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "a and b share an observer") {
		t.Errorf("warnings %q", s.Warnings)
	}
	if s.Claim != Claim(1) {
		t.Errorf("two paths of one observer claim: %s", s.Claim)
	}
}

// A path of kind src: learns by which device it leaves when it is opened.
func TestObserverThatIsSharedOnceOpenIsWarnedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := closedFake(t, 3, nil)
		if s := f.Status("relay"); len(s.Warnings) != 0 || s.Claim != Claim(3) {
			t.Errorf("before: %q, %s", s.Warnings, s.Claim)
		}
		paths[2].share = "fake:" + paths[0].name
		if err := f.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		synctest.Wait()
		if s := f.Status("relay"); len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "a and c share an observer") || s.Claim != Claim(2) {
			t.Errorf("after: %q, %s", s.Warnings, s.Claim)
		}
	})
}

func TestBadOptions(t *testing.T) {
	via := []path.Spec{{Name: "a", Kind: "fake", Arg: "x"}, {Name: "b", Kind: "fake", Arg: "y"}}
	for why, o := range map[string]Options{
		"no path":            {To: "192.0.2.1:1"},
		"not a host":         {To: "192.0.2.1", Via: via},
		"not a host and":     {To: "192.0.2.1:0", Via: via},
		"paths were given":   {To: "192.0.2.1:1", Via: via, MinPaths: 3},
		"two paths":          {To: "192.0.2.1:1", Via: append(via[:1:1], via[0])},
		"no schedule":        {To: "192.0.2.1:1", Via: via, Schedule: schedule.Config{Name: "fast"}},
		"no kind of path is": {To: "192.0.2.1:1", Via: []path.Spec{{Name: "a", Kind: "pigeon", Arg: "x"}}},
	} {
		if _, err := NewSession(o); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

func TestUnresolvableServer(t *testing.T) {
	f, err := NewSession(Options{To: "no-such-host.invalid:51820", Via: []path.Spec{{Name: "a", Kind: "fake", Arg: "z"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "does not resolve") {
		t.Errorf("open says %v", err)
	}
}

// A path that could not take a new port is opened again, though its flow passes every check.
func TestPathThatCannotRotateIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := closedFake(t, 2, nil)
		tries := 0
		paths[0].rotate = func() error {
			if tries++; tries == 1 {
				return &path.Error{Why: "no free port"}
			}
			return nil
		}
		if err := f.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		f.Send(numbered(0, 2))
		if tries != 1 {
			t.Fatalf("it was rotated %d times", tries)
		}
		paths[0].take()
		time.Sleep(time.Second)
		f.Send(numbered(2, 2))
		if n := len(paths[0].take()); n != 1 {
			t.Errorf("%d packets on the path after that, state %s: %s", n, f.Status("relay").Paths[0].State, f.Status("relay").Paths[0].Why)
		}
	})
}
