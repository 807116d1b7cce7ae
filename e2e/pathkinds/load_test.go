package pathkinds

import (
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"heddle/internal/wgtest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// boringtun demands cookies while it gets more than 100 handshake messages a second. Its count begins anew each second.
const (
	floodEvery = 10 * time.Millisecond
	floodBurst = 20
)

// A stranger's initiations bring a server of another implementation to demand cookies, and `heddle up` comes up beside them.
func TestUpWithBoringtunUnderLoad(t *testing.T) {
	w := newWorld(t, labtest.WithBystander(lab.ThreeWaysUnlimited()))
	file := filepath.Join(w.dir, "vpn.conf")
	server, err := peer.WireGuardServer(t.Context(), w.Host("server"), peer.WireGuardConfig{Endpoint: tunnelAt, File: file,
		Allowed: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}, Boringtun: true})
	if errors.Is(err, peer.ErrMissing) {
		t.Skip("typed skip:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	w.flood(wgtest.NewGuard(server.Public()))
	quiet := labtest.Unchosen(t, w.Instance, "client/"+labtest.Bystander)
	const most = 5
	for try := 1; ; try++ { // the first hundred messages of each second need no cookie
		stop := labtest.Watch(t, w.Instance, "client/lte", "client/office")
		up := w.start("client", " is up: ", "up", file, "--via", "lte=if:lte", "--via", "office=if:office")
		w.await("a ping", up, func() bool {
			return w.Host("client").Command(t.Context(), "ping", "-c", "1", "-W", "2", "10.9.0.1").Run() == nil
		})
		out, err := w.Host("client").Command(t.Context(), labtest.Heddle, "status").Output()
		loaded := err == nil && strings.Contains(string(out), "the server is under load")
		up.Stop()
		demanded, answered := 0, 0
		for _, seen := range stop() {
			owed := false // a cookie came, and no initiation with it left yet
			for _, p := range seen {
				udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
				switch {
				case !ok || len(udp.Payload) == 0:
				case udp.Payload[0] == 3 && len(udp.Payload) == 64:
					demanded, owed = demanded+1, true
				case udp.Payload[0] == 1 && len(udp.Payload) == 148 && owed && signed(udp.Payload):
					answered, owed = answered+1, false
				}
			}
		}
		t.Logf("try %d: %d cookies, %d initiations with one; status tells of the load: %t", try, demanded, answered, loaded)
		if demanded > 0 && answered > 0 && loaded {
			break
		}
		if try == most {
			t.Fatalf("no initiation with a cookie in %d tries:\n%s", try, up.Log())
		}
	}
	quiet()
}

// signed reports whether a handshake message has a second MAC.
func signed(message []byte) bool {
	for _, b := range message[len(message)-16:] {
		if b != 0 {
			return true
		}
	}
	return false
}

// flood sends initiations from core to the tunnel's server until the test ends, or for two minutes.
func (w *world) flood(g *wgtest.Guard) {
	w.t.Helper()
	var socket net.Conn
	err := w.Host("core").Do(func() (err error) {
		socket, err = net.Dial("udp", tunnelAt.String())
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 * time.Minute / floodEvery {
			for range floodBurst {
				if _, err := socket.Write(g.Initiation()); errors.Is(err, net.ErrClosed) {
					return
				}
			}
			time.Sleep(floodEvery)
		}
	}()
	w.t.Cleanup(func() { socket.Close(); <-done })
}
