package pathkinds

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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
	t   *testing.T
	dir string
}

func newWorld(t *testing.T, w lab.World) *world {
	t.Helper()
	t.Parallel()
	in := labtest.Up(t, w)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // peers give up root
		t.Fatal(err)
	}
	return &world{Instance: in, t: t, dir: dir}
}

// need waits until the test ends with a peer, or skips the test where its program is missing.
func (w *world) need(p *peer.Process, err error) *peer.Process {
	w.t.Helper()
	if errors.Is(err, peer.ErrMissing) {
		w.t.Skip(err)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Stop)
	return p
}

// secret writes a file that only its owner can read.
func (w *world) secret(text string) string {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
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
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
		select {
		case <-p.Done():
			w.t.Fatalf("it ended before %q:\n%s", what, p.Log())
		default:
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not within two minutes: %q:\n%s", what, p.Log())
		}
	}
}

// answers waits until TCP at an address of the host is answered.
func (w *world) answers(host string, p *peer.Process, at netip.AddrPort) {
	w.t.Helper()
	w.await("a connection to "+at.String(), p, func() bool {
		return w.Host(host).Do(func() error {
			conn, err := net.Dial("tcp", at.String())
			if err != nil {
				return err
			}
			return conn.Close()
		}) == nil
	})
}

// The client's addresses, on the device to each access network.
var (
	homeAddr   = netip.MustParseAddr("10.101.1.2")
	lteAddr    = netip.MustParseAddr("10.101.2.2")
	officeAddr = netip.MustParseAddr("10.101.3.2")
)

// clients are the addresses that the client has, on its devices and inside tunnels; exits are those that a server
// hears it from besides. A reading leaves out who is not among them.
var (
	clients = []netip.Addr{homeAddr, lteAddr, officeAddr, insideVPN, insideOpenVPN.Addr()}
	exits   = []netip.Addr{masqueAt.Addr(), proxyAt.Addr(), vpnAt.Addr()}
)

// watch captures at devices, each HOST/DEVICE, until stop.
func (w *world) watch(places ...string) (stop func() map[string]*observe.Capture) {
	w.t.Helper()
	dir, named := w.t.TempDir(), map[string]string{}
	for _, place := range places {
		named[strings.ReplaceAll(place, "/", "-")] = place
	}
	end := labtest.Capture(w.t, w.Instance, dir, named)
	return func() map[string]*observe.Capture {
		w.t.Helper()
		end()
		seen := map[string]*observe.Capture{}
		for name, place := range named {
			who := clients
			if strings.HasPrefix(place, "server/") {
				who = slices.Concat(clients, exits)
			}
			seen[place] = labtest.Read(w.t, labtest.File(dir, name), who)
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
			seen[between(f.Client.Addr(), f.Server.Addr())]++
		}
	}
	return seen
}
