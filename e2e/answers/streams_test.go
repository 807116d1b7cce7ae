package answers

import (
	"io"
	"net"
	"testing"
	"time"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// streams is a striped stream over both chosen networks, in the middle of a download that does not end.
type streams struct {
	*world
	dial *peer.Process
	exit func() // ends the program
}

func newStreams(t *testing.T, backend string, c setting) *streams {
	t.Helper()
	s := &streams{world: newWorld(t, farAway())}
	s.endless("127.0.0.1:8080")
	at := c.at(peer.StreamPort)
	s.StreamServer("server", at, "stream", "serve", "--backend", backend, "--name", "s", "--to", "127.0.0.1:8080")
	args := append([]string{"stream", "dial", "s", "--backend", backend, "--listen", "127.0.0.1:2222", "--to", at.String(), "--key", s.Key("server")}, s.paths(c)...)
	if backend == "mptcp" {
		args = append(args, "--set-path-manager", "--warm", "0")
	}
	s.dial = s.start(c.before, "is up", args...)
	var program net.Conn
	s.do("client", func() (err error) {
		program, err = net.Dial("tcp", "127.0.0.1:2222")
		return err
	})
	s.exit = func() { program.Close() }
	t.Cleanup(s.exit)
	if _, err := io.CopyN(io.Discard, program, 1<<18); err != nil {
		t.Fatalf("%v\n%s", err, s.dial.Log())
	}
	go func() { _, _ = io.Copy(io.Discard, program) }()
	s.more(chosen...)
	return s
}

// farAway is a world whose delay keeps many packets of a slow download under way.
func farAway() lab.World {
	w := lab.ThreeWays()
	for i := range w.Links {
		for _, s := range []*lab.Shape{&w.Links[i].AtoB, &w.Links[i].BtoA} {
			s.Delay *= 8
		}
	}
	return w
}

// endless serves a download on the server that does not end. It has 3 Mbit/s at most, so that a world leaves others the processor.
func (w *world) endless(at string) {
	w.t.Helper()
	var service net.Listener
	w.do("server", func() (err error) {
		service, err = net.Listen("tcp", at)
		return err
	})
	w.t.Cleanup(func() { service.Close() })
	go func() {
		for {
			c, err := service.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for b := make([]byte, 4<<10); err == nil; time.Sleep(10 * time.Millisecond) {
					_, err = c.Write(b)
				}
			}()
		}
	}()
}

var streamEvents = map[string]func(*streams){
	"the program exits": func(s *streams) { s.exit() },
	"SIGINT":            func(s *streams) { _ = s.dial.Interrupt() },
	"SIGKILL":           func(s *streams) { s.dial.Kill() },
	"a device flaps":    func(s *streams) { s.flap("lte") },
}

// striped are streams by name.
var striped = map[string]struct {
	backend string
	setting
}{
	"with rights":         {"stripe", setting{kind: "if"}},
	"without rights":      {"stripe", withoutRights},
	"IPv6":                {"stripe", setting{kind: "if", v6: true}},
	"IPv6 without rights": {"stripe", setting{kind: "if", v6: true, before: unprivileged}},
	"src":                 {"stripe", setting{kind: "src"}},
	"src without rights":  {"stripe", setting{kind: "src", before: unprivileged}},
	"node":                {"stripe", setting{kind: "node"}},
	"node without rights": {"stripe", setting{kind: "node", before: unprivileged}},
	"mptcp":               {"mptcp", setting{kind: "nat"}},
	"mptcp IPv6":          {"mptcp", setting{kind: "nat", v6: true}},
}

func TestStreams(t *testing.T) {
	for name, c := range striped {
		for what, happens := range streamEvents {
			t.Run(name+"/"+what, func(t *testing.T) {
				s := newStreams(t, c.backend, c.setting)
				stop := s.watch()
				happens(s)
				s.quiet()
				stop()
			})
		}
	}
}

// Without the guards the kernel's answers to the same streams leave by home.
func TestStreamsWithoutGuards(t *testing.T) {
	for name, c := range striped {
		if c.before != nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := newStreams(t, c.backend, c.setting)
			s.unguard(c.setting)
			stop := labtest.Left(t, s.Instance, "client/home")
			streamEvents["SIGKILL"](s)
			s.quiet()
			if len(stop()) == 0 {
				t.Error("nothing left by home")
			}
		})
	}
}
