package hostile

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/peer"
)

// front starts a session of one front end, and returns the port of its server and how a program's packet goes there and back.
type front struct {
	port  uint16
	start func(*world) (s *session, carries func() error)
}

var fronts = map[string]front{"relay": {5555, startRelay}, "tunnel": {51820, startTunnel}}

func startRelay(w *world) (*session, func() error) {
	for _, at := range []netip.Addr{netip.IPv4Unspecified(), attacker} {
		host := map[bool]string{true: "core", false: "server"}[at == attacker]
		w.echo(host, netip.AddrPortFrom(at, 5555))
	}
	listen := netip.MustParseAddrPort("127.0.0.1:5555")
	s := w.start("listening on", append([]string{"split", "--listen", listen.String(), "--to", serverName + ":5555"}, via()...)...)
	return s, w.program(listen)
}

func startTunnel(w *world) (*session, func() error) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "vpn.conf")
	endpoint := netip.AddrPortFrom(lab.ServerAddr, 51820)
	if _, err := peer.WireGuardServer(w.t.Context(), w.Host("server"), peer.WireGuardConfig{Endpoint: endpoint, File: file}); err != nil {
		w.t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	named := strings.Replace(string(text), endpoint.String(), serverName+":51820", 1)
	if err := os.WriteFile(file, []byte(named), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.echo("core", netip.AddrPortFrom(attacker, 51820))
	inside := netip.MustParseAddrPort("10.9.0.1:7000")
	w.echo("server", inside)
	s := w.start(" is up: ", append([]string{"up", file}, via()...)...)
	return s, w.program(inside)
}

// burst is how many packets a program sends at once, so that the attacker gets what it replays without a minute of questions.
const burst = 8

// program returns a program in the client that sends a burst of one packet and waits a while for an answer to it.
func (w *world) program(to netip.AddrPort) (exchange func() error) {
	w.t.Helper()
	var conn *net.UDPConn
	err := w.Host("client").Do(func() (err error) {
		conn, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	number, buffer := 0, make([]byte, 1500)
	return func() error {
		number++
		text := fmt.Sprintf("number %d", number)
		for range burst {
			_, _ = conn.Write([]byte(text)) // fails where an ICMP error came before
		}
		conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		for {
			n, err := conn.Read(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("no answer to %s", text)
			}
			if err == nil && string(buffer[:n]) == text {
				return nil
			}
		}
	}
}

// One of three networks forges the nameserver's answers while the server is silent, and ICMP errors, replays and delays all the
// time. It is the network of the default route. No packet of the session goes to the attacker's machine by any network, and the
// session goes on by the others.
func TestOneHostileNetworkDoesNotMoveTheSession(t *testing.T) {
	for name, f := range fronts {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s, carries := f.start(w)
			home := netip.AddrPortFrom(lab.ServerAddr, f.port)
			s.at(home, carries)
			network := w.takeOver("home")
			stop := w.watch()

			network.set(func() { network.noisy = true })
			polltest.Await(t, "replays and forged errors", func() bool {
				_ = carries()
				_, forged, replays, _ := network.counts()
				return forged > 0 && replays > 100
			})
			s.at(home, carries)

			// A replay would tell the session that the server is there.
			network.set(func() { network.noisy, network.lies = false, attacker })
			w.silence()
			polltest.Until(t, func() error {
				_ = carries()
				lies, _, _, _ := network.counts()
				if lies == 0 || !strings.Contains(s.Log(), "path home gives an address of "+serverName+" that no other path confirms") {
					return fmt.Errorf("%d lies, and none is told:\n%s", lies, s.Log())
				}
				return nil
			})
			w.speak()
			network.set(func() { network.noisy = true })
			s.at(home, carries)

			sent := stop()
			if n := sent[attacker]; len(n) > 0 {
				t.Errorf("packets to the attacker's machine by network: %v\n%s", n, s.Log())
			}
			if n := sent[lab.ServerAddr]; n["lte"] == 0 || n["office"] == 0 {
				t.Errorf("packets to the server by network: %v", n)
			}
			lies, forged, replays, delays := network.counts()
			t.Logf("%d lies, %d forged errors, %d replays, %d delayed packets; packets by address and network: %v", lies, forged, replays, delays, sent)
		})
	}
}

// A server that really moves is followed, since all networks say where it is, and so it is when it comes back.
func TestSessionFollowsItsServer(t *testing.T) {
	for name, f := range fronts {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s, carries := f.start(w)
			for _, to := range []netip.Addr{lab.ServerAddr, moved, lab.ServerAddr} {
				w.move(to)
				s.at(netip.AddrPortFrom(to, f.port), carries)
			}
		})
	}
}

// The attacker's machine answers, and the capture sees it: the tests above would notice.
func TestAttackerCanBeReached(t *testing.T) {
	w := newWorld(t)
	_, _ = startRelay(w)
	stop := w.watch()
	polltest.Until(t, w.program(netip.AddrPortFrom(attacker, 5555)))
	if sent := stop(); sent[attacker]["home"] == 0 {
		t.Errorf("packets by address and network: %v", sent)
	}
}
