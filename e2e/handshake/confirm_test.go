package handshake

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"heddle/internal/clienthello"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// serverName is in the certificate of the servers of other libraries.
const serverName = "server.example"

// Short sessions at the shortest useful period all end, over links that lose packets, and each does its whole handshake from
// one port in one network. Afterwards it goes on by the others.
func TestShortSessionsKeepOnePathForTheirHandshake(t *testing.T) {
	const sessions = 24
	for _, library := range []string{"quic-go", "aioquic"} {
		t.Run(library, func(t *testing.T) {
			t.Parallel()
			in := labtest.Up(t, labtest.WithBystander(lab.ThreeWays()))
			for _, way := range lab.Ways {
				if err := in.Link(way).Reshape(func(s *lab.Shape) { s.Loss = 0.03 }); err != nil {
					t.Fatal(err)
				}
			}
			work := t.TempDir()
			q, err := peer.QUICServer(t.Context(), in.Host("server"), library, peer.QUICConfig{Addr: server, Names: []string{serverName}, Work: work})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(q.Stop)
			args := []string{"split", "--listen", relay.String(), "--to", server.String(), "--schedule", "round-robin", "--every", "10ms"}
			places := map[string]string{}
			for _, way := range lab.Ways {
				args = append(args, "--via", way+"=if:"+way)
				places[way] = "client/" + way
			}
			p, err := peer.Start(t.Context(), in.Host("client"), labtest.Heddle, args...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Stop)
			if err := p.AwaitLog(t.Context(), "listening on"); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			stop, quiet := labtest.Capture(t, in, dir, places), labtest.Unchosen(t, in, "client/"+labtest.Bystander)
			for n := range sessions {
				if err := shortSession(t, in.Host("client"), q.Certificate); err != nil {
					t.Errorf("session %d: %v", n, err)
				}
			}
			p.Stop()
			stop()
			quiet()
			if wantOnePlace(t, dir, sessions); t.Failed() {
				t.Log(p.Log())
			}
		})
	}
}

// shortSession fetches some bytes by the relay on a connection with an id of its own, and fails if that takes a minute.
func shortSession(t *testing.T, client *lab.Host, certificate string) error {
	ctx, cancel := context.WithTimeout(t.Context(), loadLimit)
	defer cancel()
	var socket *net.UDPConn
	err := client.Do(func() (err error) {
		socket, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(relay.Addr(), 0)))
		return err
	})
	if err != nil {
		return err
	}
	defer socket.Close()
	conn := &quic.Transport{Conn: socket, ConnectionIDLength: 8}
	defer conn.Close()
	pem, err := os.ReadFile(certificate)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	h3 := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: roots},
		QUICConfig: &quic.Config{HandshakeIdleTimeout: patience},
		Dial: func(ctx context.Context, _ string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
			return conn.DialEarly(ctx, net.UDPAddrFromAddrPort(relay), t, q)
		}}
	defer h3.Close()
	const size = 200_000
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s/%d", serverName, size), nil)
	if err != nil {
		return err
	}
	response, err := h3.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if n, err := io.Copy(io.Discard, response.Body); err != nil || n != size {
		return fmt.Errorf("%d of %d bytes: %w", n, size, err)
	}
	return nil
}

// handshakeLimit is how long a handshake keeps its path, so that nobody can keep a session on one path.
const handshakeLimit = 10 * time.Second

// wantOnePlace wants the client's long headers of each connection from one port of one network, its data in all networks, and
// as many connections as sessions.
func wantOnePlace(t *testing.T, dir string, sessions int) {
	t.Helper()
	type place struct {
		way  string
		port layers.UDPPort
	}
	type sent struct {
		packets int
		first   time.Time
	}
	places, data := map[string]map[place]sent{}, map[string]int{}
	for _, way := range lab.Ways {
		for at, p := range labtest.Packets(t, labtest.File(dir, way)) {
			udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
			if !ok || udp.DstPort != layers.UDPPort(server.Port()) {
				continue
			}
			packets, _ := clienthello.Packets(udp.Payload)
			if len(packets) == 0 {
				data[way]++
				continue
			}
			id := string(packets[0].Source)
			if places[id] == nil {
				places[id] = map[place]sent{}
			}
			from := places[id][place{way, udp.SrcPort}]
			if from.packets++; from.packets == 1 {
				from.first = at
			}
			places[id][place{way, udp.SrcPort}] = from
		}
	}
	if len(places) != sessions {
		t.Errorf("%d connections were captured, want %d", len(places), sessions)
	}
	for id, at := range places {
		var begins []time.Time
		for _, from := range at {
			begins = append(begins, from.first)
		}
		slices.SortFunc(begins, time.Time.Compare)
		if len(begins) > 1 && begins[1].Sub(begins[0]) < handshakeLimit {
			t.Errorf("connection %x sent its handshake from %v", id, at)
		}
	}
	for _, way := range lab.Ways {
		if data[way] < sessions {
			t.Errorf("%s carried %d datagrams of data, want some of each of %d sessions", way, data[way], sessions)
		}
	}
}
