package schedules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// below starts a session on a backend below the socket, or skips the test where the kernel has none.
func (w *world) below(backend string, s *splitting, more ...string) *peer.Process {
	w.t.Helper()
	p, err := w.start("client", "INFO running", append(append(s.args(), "--backend", backend), more...)...)
	if err != nil {
		if strings.Contains(err.Error(), "the kernel refuses") {
			w.t.Skip("typed skip:", err)
		}
		w.t.Fatal(err)
	}
	return p
}

// Below the socket the networks get whole units too, and a crash leaves nothing that down does not take back.
func TestBackends(t *testing.T) {
	for i, c := range []struct {
		backend string
		s       splitting
		more    []string
	}{
		{"kernel", splitting{kind: "if", schedule: "round-robin", every: "50p"}, []string{"--gso-off"}},
		{"kernel", splitting{kind: "src", schedule: "weighted", every: "20ms", run: 8}, nil},
		{"route", splitting{kind: "if", schedule: "round-robin", every: "20ms", clocked: true}, nil},
	} {
		t.Run(c.backend+"-"+c.s.name(), func(t *testing.T) {
			t.Parallel() // each has a world of its own, and waits most of the time
			w := newWorld(t)
			w.routeBySource()
			c.s.port = uint16(7300 + i)
			to := netip.AddrPortFrom(serverAddr, c.s.port)
			w.echo(to)
			running := w.below(c.backend, &c.s, c.more...)
			w.firstUnit(&c.s, to)
			sent := c.s.traffic(to)
			if c.s.run > 0 && c.s.batch() == 0 {
				sent.n *= c.s.run
			}
			// While a busy machine lets Heddle wait, time passes and the path stays, or it is doubted. And a sender that is late by a unit may send
			// in each third unit alone, which is always of the same path.
			again := polltest.Again
			if c.s.clocked {
				again = func(t testing.TB, measure func(int) error) { polltest.AgainAfter(t, unit/2, measure) }
			}
			again(t, func(int) error {
				stop := w.watch(false)
				slowest, err := w.timed(sent)
				if err != nil {
					t.Fatalf("%v\n%s", err, running.Log())
				}
				if c.s.weights, err = w.weights(c.s.name()); err != nil {
					t.Fatal(err)
				}
				if err = c.s.check(stop(), sent); err == nil {
					return nil
				}
				err = fmt.Errorf("with answers within %v: %w", slowest, err)
				if !c.s.clocked && slowest < late {
					t.Fatal(err)
				}
				return err
			})
			w.crash(&c.s, running)
		})
	}
}

// firstUnit sends one datagram, which must come back at once since heddle said that it runs, and then what is left of the
// unit, where units are packets.
func (w *world) firstUnit(s *splitting, to netip.AddrPort) {
	w.t.Helper()
	if err := w.send(traffic{session: 1, to: to, n: 1, patience: 20 * time.Second}); err != nil {
		w.t.Fatalf("the first datagram: %v", err)
	}
	if n := s.batch(); n > 0 {
		if err := w.send(traffic{session: 97, to: to, n: n - 1}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// crash kills heddle. The kernel closes the way out then: it knows that nobody renews the permission. Then it cleans up.
func (w *world) crash(s *splitting, running *peer.Process) {
	w.t.Helper()
	to := netip.AddrPortFrom(serverAddr, s.port)
	short := traffic{session: 99, to: to, n: opening, patience: 300 * time.Millisecond}
	w.kill(s.name(), running)
	once := short
	once.n, once.session = 1, 98
	leaves := func() (way string) {
		stop := w.watch(false)
		back := w.send(once) == nil
		once.session--
		for name, all := range stop() {
			if slices.ContainsFunc(all, func(p packet) bool { return p.up(s.port) }) || back {
				way = name
			}
		}
		return way
	}
	for end := time.Now().Add(30 * time.Second); leaves() != ""; {
		if time.Now().After(end) {
			w.t.Fatal("after the crash datagrams go on leaving")
		}
	}
	stop := w.watch(false)
	if err := w.send(short); err == nil {
		w.t.Error("a session after the crash comes through")
	}
	for way, all := range stop() {
		for _, p := range all {
			if p.up(s.port) {
				w.t.Errorf("after the crash a datagram leaves by %s", way)
			}
		}
	}
	out, err := w.Host("client").Command(w.t.Context(), labtest.Heddle, "down", s.name()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "taken back") {
		w.t.Errorf("heddle down: %v\n%s", err, out)
	}
	short.session, short.patience = 100, 0
	if err := w.send(short); err != nil {
		w.t.Errorf("after cleaning up: %v", err)
	}
}

// Without rights the kernel backend is refused, by name, and the relay runs in its place only where it was asked for.
func TestBackendWithoutRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &splitting{kind: "if", schedule: "round-robin", every: "20ms", port: 7350}
	listen := netip.MustParseAddrPort("127.0.0.1:7350")
	w.echo(netip.AddrPortFrom(serverAddr, s.port))
	const dropped = "-bpf,-perfmon,-net_admin,-sys_admin"
	powerless := append([]string{"--bounding-set=" + dropped, "--inh-caps=" + dropped, labtest.Heddle}, s.args()...)

	out, err := w.Host("client").Command(t.Context(), "setpriv", append(powerless, "--backend", "kernel")...).CombinedOutput()
	var exit interface{ ExitCode() int }
	if !errors.As(err, &exit) || exit.ExitCode() <= 0 || !strings.Contains(string(out), "the kernel refuses the kernel backend") ||
		!strings.Contains(string(out), "CAP_BPF") {
		t.Fatalf("%v\n%s", err, out)
	}

	for try := 1; ; try++ {
		slowest, err := w.instead(s, listen, append(powerless, "--backend", "kernel,relay", "--listen", listen.String()))
		if err == nil {
			break
		}
		if slowest < late || try == tries {
			t.Fatalf("with answers within %v: %v", slowest, err)
		}
		t.Logf("with answers within %v: %v; again", slowest, err)
	}
}

// instead starts heddle by setpriv, which must go on with the relay. It returns how long the slowest answer of a session took, and how
// that was split wrongly.
func (w *world) instead(s *splitting, listen netip.AddrPort, args []string) (slowest time.Duration, wrong error) {
	w.t.Helper()
	stop := w.watch(false)
	p, err := peer.Start(w.t.Context(), w.Host("client"), "setpriv", args...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer p.Stop()
	if err := p.AwaitLog(w.t.Context(), "listening on"); err != nil {
		w.t.Fatal(err)
	}
	if !strings.Contains(p.Log(), "going on with backend relay, as told") {
		w.t.Errorf("it does not say that it goes on with the relay:\n%s", p.Log())
	}
	sent := s.traffic(listen)
	if slowest, err = w.timed(sent); err != nil {
		w.t.Fatal(err)
	}
	if s.weights, err = w.weights(s.name()); err != nil {
		w.t.Fatal(err)
	}
	return slowest, s.check(stop(), sent)
}
