package bench

import (
	"context"
	"strconv"
	"strings"
	"time"

	"heddle/internal/netutil"
	"heddle/lab"
	"heddle/lab/peer"
)

// moshPainter repaints the screen 200 times a second with new text that hardly compresses. mosh-server sends less
// often: once per half round trip, and at most 50 times a second. The first row begins with the number of the painting.
// It ends with its terminal.
const moshPainter = `
import random, string, sys, time
draw = random.Random(1)
rows = ["".join(draw.choices(string.ascii_letters + string.digits, k=70)) for _ in range(5003)]
n = 0
while True:
    n += 1
    sys.stdout.write("\033[H" + "\r\n".join("%08d %s" % (n, rows[(n * 23 + i) % len(rows)]) for i in range(23)))
    sys.stdout.flush()
    time.sleep(0.005)
`

// moshSettles is the time until mosh's rate is steady: it depends on the smoothed round trip, which weights each of ten
// samples a second by an eighth and so forgets a slow start late.
const moshSettles = 4 * time.Second

// paperMosh is the relative throughput at a switching period of 10 ms: "less than 5%" less (CoMPS, section 6).
const paperMosh = 0.95

// Mosh is figure 8(d) of CoMPS: throughput of a Mosh session with a screen that always changes, by switching period,
// over three paths, relative to no switching; and the screens a second that the user sees. In shared all paths have one
// bottleneck. Both ends are the unmodified mosh.
func Mosh() Bench {
	return Bench{
		name: "mosh",
		topologies: func(quick bool) []*topology {
			return moshTopologies(quick, moshSettles, 4*time.Second)
		},
		paper: func(name string) *float64 {
			if name != "equal/10ms/down" && name != "shared/10ms/down" {
				return nil
			}
			return new(paperMosh)
		},
	}
}

func moshTopologies(quick bool, settle, length time.Duration) []*topology {
	in := func(name string, world lab.World) (*topology, *moshServer) {
		m := &moshServer{settle: settle, length: length}
		return &topology{name: name, world: world, serve: m.serve}, m
	}
	equal, equalServer := in("equal", lab.ThreeWays())
	shared, sharedServer := in("shared", lab.ThreeWaysShared())
	for _, every := range []string{"none", "500ms", "200ms", "100ms", "50ms", "40ms", "30ms", "20ms", "10ms"} {
		if !quick || every == "none" || every == "100ms" || every == "10ms" {
			equal.cases = append(equal.cases, equalServer.variant(every, moshSplit(every)))
		}
	}
	if !quick {
		equal.cases = append(equal.cases, equalServer.variant("mosh", moshPlain))
	}
	for _, every := range sharedPeriods {
		shared.cases = append(shared.cases, sharedServer.variant(every, moshSplit(every)))
	}
	return []*topology{equal, shared}
}

// moshServer is the server of one topology, and the measured time of each case and the start before it.
type moshServer struct {
	*peer.MoshHost
	settle, length time.Duration
}

func (m *moshServer) serve(ctx context.Context, s *stage) (err error) {
	m.MoshHost, err = peer.Mosh(ctx, s.Host("server"), s.work)
	return err
}

// moshClient starts a session that runs the painter.
type moshClient func(ctx context.Context, s *stage, m *moshServer, seed int) (*peer.Terminal, error)

// moshSplit runs `heddle mosh` over all access networks.
func moshSplit(every string) moshClient {
	return func(ctx context.Context, s *stage, m *moshServer, seed int) (*peer.Terminal, error) {
		return m.Split(ctx, s.Host("client"), s.heddle, append(schedule(every, seed), over(lab.Ways)...), "python3", "-c", moshPainter)
	}
}

// moshPlain runs plain mosh over the default route.
func moshPlain(ctx context.Context, s *stage, m *moshServer, _ int) (*peer.Terminal, error) {
	return m.Plain(ctx, s.Host("client"), "python3", "-c", moshPainter)
}

// variant measures one session.
func (m *moshServer) variant(name string, client moshClient) variant {
	return variant{name, func(ctx context.Context, s *stage, seed int) ([]figure, error) {
		terminal, err := client(ctx, s, m, seed)
		if err != nil {
			return nil, err
		}
		defer terminal.Stop()
		if err := terminal.Await(ctx, time.Minute, painted); err != nil {
			return nil, err
		}
		if err := netutil.Sleep(ctx, m.settle); err != nil {
			return nil, err
		}
		if err := s.ResetLateness(); err != nil {
			return nil, err
		}
		before, err := delivered(s.Instance)
		if err != nil {
			return nil, err
		}
		began, updates := time.Now(), terminal.Updates()
		if err := netutil.Sleep(ctx, m.length); err != nil {
			return nil, err
		}
		after, err := delivered(s.Instance)
		if err != nil {
			return nil, err
		}
		took := time.Since(began).Seconds()
		return []figure{
			{"down", "throughput", "kbit/s", float64(after-before) * 8 / 1e3 / took},
			{"screens", "updates", "1/s", float64(terminal.Updates()-updates) / took},
		}, nil
	}}
}

// painted reports whether the painter's number is on the screen.
func painted(screen []string) bool {
	first, _, _ := strings.Cut(screen[0], " ")
	_, err := strconv.ParseUint(first, 10, 64)
	return err == nil
}

// delivered returns what the access networks delivered to the client, in bytes with IP headers.
func delivered(in *lab.Instance) (bytes uint64, err error) {
	for _, way := range lab.Ways {
		s, err := in.Link(way).Status()
		if err != nil {
			return 0, err
		}
		bytes += s.BtoA.DeliveredBytes // the client is end A
	}
	return bytes, nil
}
