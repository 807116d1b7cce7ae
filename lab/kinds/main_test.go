package kinds

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/observe"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// world is a world of the lab that a test runs programs in.
type world struct {
	*lab.Instance
	t        *testing.T
	dir      string
	captures int
}

func newWorld(t *testing.T, w lab.World) *world {
	t.Helper()
	t.Parallel() // most of a session is waiting
	in := labtest.Up(t, w)
	return &world{Instance: in, t: t, dir: t.TempDir()}
}

// start starts heddle in a host, and waits until it says a word.
func (w *world) start(host, word string, args ...string) *peer.Process {
	w.t.Helper()
	p, err := peer.Start(w.t.Context(), w.Host(host), labtest.Heddle, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Stop)
	w.await(word, p, func() bool { return strings.Contains(p.Log(), word) })
	return p
}

// await polls until something holds, or the program ends.
func (w *world) await(what string, p *peer.Process, holds func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
		select {
		case <-p.Done():
			w.t.Fatalf("it ended before %q:\n%s", what, p.Log())
		default:
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not within 40 s: %q:\n%s", what, p.Log())
		}
	}
}

// everybody who sends to the server: who is not among them is left out of a reading.
var everybody = []netip.Addr{netip.MustParseAddr("10.101.1.2"), netip.MustParseAddr("10.101.2.2"), netip.MustParseAddr("10.101.3.2"),
	proxyAddr.Addr()}

// watch captures at devices, each HOST/DEVICE, until stop.
func (w *world) watch(places ...string) (stop func() map[string]*observe.Capture) {
	w.t.Helper()
	running, files := map[string]*lab.Capture{}, map[string]string{}
	for _, place := range places {
		host, device, _ := strings.Cut(place, "/")
		w.captures++
		files[place] = filepath.Join(w.dir, fmt.Sprintf("%s-%s-%d.pcapng", host, device, w.captures))
		c, err := w.Capture(w.t.Context(), host, device, files[place])
		if err != nil {
			w.t.Fatal(err)
		}
		running[place] = c
	}
	return func() map[string]*observe.Capture {
		seen := map[string]*observe.Capture{}
		for place, c := range running {
			if n, err := c.Stop(); err != nil || n.Dropped > 0 {
				w.t.Errorf("capture at %s: %+v, %v", place, n, err)
			}
			f, err := os.Open(files[place])
			if err != nil {
				w.t.Fatal(err)
			}
			defer f.Close()
			if seen[place], err = observe.Read(f, everybody); err != nil {
				w.t.Fatalf("%s: %v", place, err)
			}
		}
		return seen
	}
}

// peers are the two ends of all UDP packets in a capture, and how many there were.
func peers(c *observe.Capture) map[string]int {
	seen := map[string]int{}
	for _, p := range c.Packets {
		f := c.Flows[p.Flow]
		if f.Transport == "udp" {
			a, b := f.Client.Addr(), f.Server.Addr()
			if b.Less(a) {
				a, b = b, a
			}
			seen[a.String()+" "+b.String()]++
		}
	}
	return seen
}
