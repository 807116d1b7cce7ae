package handshake

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"heddle/experiments/censor"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// The server has two names; the censors' list has one of them.
const (
	blocked = "blocked.example"
	open    = "open.example"
)

// pageBytes is the size of the page: enough that its packets go by both paths several times.
const pageBytes = 600_000

var (
	server = netip.AddrPortFrom(lab.ServerAddr, 443)
	home   = netip.MustParseAddr("10.101.1.2") // the client's address there
	relay  = netip.MustParseAddrPort("127.0.0.1:4433")
)

// censored are the networks with a censor.
var censored = []string{"home", "lte"}

func TestMain(m *testing.M) { labtest.Main(m) }

// world is threeways with censors, and a web server with HTTP/3 and with TLS over TCP.
type world struct {
	*lab.Instance
	t           *testing.T
	certificate string
	page        []byte
	censors     map[string]*censor.Censor
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	in := labtest.Up(t, lab.ThreeWays())
	w := &world{Instance: in, t: t, censors: map[string]*censor.Censor{}}
	w.serve()
	for _, way := range censored {
		c, err := censor.Start(t.Context(), in.Host(way+"-gw"), censor.Options{Names: []string{blocked}, Reset: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		})
		w.censors[way] = c
	}
	return w
}

func (w *world) serve() {
	w.t.Helper()
	root, work := filepath.Join(w.t.TempDir(), "site"), w.t.TempDir()
	if _, err := peer.Site(root, pageBytes); err != nil {
		w.t.Fatal(err)
	}
	var err error
	if w.page, err = os.ReadFile(filepath.Join(root, "large.bin")); err != nil {
		w.t.Fatal(err)
	}
	web, err := peer.WebServer(w.t.Context(), w.Host("server"), root, work, blocked, open)
	if err != nil {
		w.t.Fatal(err)
	}
	w.certificate = web.Certificate
	pair, err := tls.LoadX509KeyPair(web.Certificate, filepath.Join(work, "key.pem"))
	if err != nil {
		w.t.Fatal(err)
	}
	var socket net.PacketConn
	err = w.Host("server").Do(func() (err error) {
		socket, err = net.ListenPacket("udp", server.String())
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	h3 := &http3.Server{Handler: http.FileServer(http.Dir(root)),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}}
	done := make(chan error, 1)
	go func() { done <- h3.Serve(socket) }()
	w.t.Cleanup(func() {
		h3.Close()
		socket.Close()
		<-done
	})
}

// split starts `heddle split` in the client over the censored networks, and waits until it listens.
func (w *world) split(args ...string) *peer.Process {
	w.t.Helper()
	all := []string{"split", "--listen", relay.String(), "--to", server.String(), "--path", "office=if:office",
		"--schedule", "round-robin", "--every", "20p"}
	for _, way := range censored {
		all = append(all, "--via", way+"=if:"+way)
	}
	p, err := peer.Start(w.t.Context(), w.Host("client"), labtest.Heddle, append(all, args...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Stop)
	for end := time.Now().Add(time.Minute); !strings.Contains(p.Log(), "listening on"); time.Sleep(10 * time.Millisecond) {
		select {
		case <-p.Done():
			w.t.Fatalf("heddle split ended:\n%s", p.Log())
		default:
		}
		if time.Now().After(end) {
			w.t.Fatalf("heddle split does not listen:\n%s", p.Log())
		}
	}
	return p
}

// status is what a censor did, and its one name.
func (w *world) status(way string) (censor.Status, censor.Name) {
	w.t.Helper()
	s := w.censors[way].Status()
	if s.Lost > 0 {
		w.t.Errorf("%s: the censor lost %d packets", way, s.Lost)
	}
	return s, s.Names[0]
}
