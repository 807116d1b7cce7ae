package answers

import (
	"io"
	"net"
	"testing"
	"time"

	"heddle/lab"
	"heddle/lab/peer"
)

// streams is a striped stream over both chosen networks, in the middle of a download that does not end.
type streams struct {
	*world
	dial *peer.Process
	exit func() // ends the program
}

func newStreams(t *testing.T, before []string) *streams {
	t.Helper()
	s := &streams{world: newWorld(t, lab.ThreeWays())} // whose delay keeps packets under way
	s.endless("127.0.0.1:8080")
	s.StreamServer("server", streamAt, "stream", "serve", "--name", "s", "--to", "127.0.0.1:8080")
	s.dial = s.start(before, "is up", append([]string{"stream", "dial", "s", "--listen", "127.0.0.1:2222", "--to", streamAt.String(), "--key", s.Keys["server"]}, via...)...)
	var program net.Conn
	s.do("client", func() (err error) {
		program, err = net.Dial("tcp", "127.0.0.1:2222")
		return err
	})
	s.exit = func() { program.Close() }
	t.Cleanup(s.exit)
	if _, err := io.CopyN(io.Discard, program, 4<<20); err != nil {
		t.Fatalf("%v\n%s", err, s.dial.Log())
	}
	go func() { _, _ = io.Copy(io.Discard, program) }()
	s.more(chosen...)
	return s
}

// endless serves a download on the server that does not end.
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
				for b := make([]byte, 1<<16); err == nil; {
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

func TestStreams(t *testing.T) {
	for name, before := range map[string][]string{"with rights": nil, "without rights": unprivileged} {
		for what, happens := range streamEvents {
			t.Run(name+"/"+what, func(t *testing.T) {
				s := newStreams(t, before)
				stop := s.watch()
				happens(s)
				s.quiet()
				stop()
			})
		}
	}
}

// quiet waits until little comes from the server any more, or for ten seconds if the stream goes on.
func (s *streams) quiet() {
	for last, end := s.received("lte"), time.Now().Add(10*time.Second); time.Now().Before(end); {
		time.Sleep(2 * time.Second)
		now := s.received("lte")
		if now < last+5 {
			return
		}
		last = now
	}
}
