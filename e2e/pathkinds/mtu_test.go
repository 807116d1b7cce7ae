package pathkinds

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"
	"github.com/vishvananda/netlink"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// Path lte carries smaller datagrams than path home. QUIC at both ends searches for the largest size (RFC 8899) over both
// paths at once, and has to settle on one that lte carries.
func TestQUICSettlesOnTheNarrowestPath(t *testing.T) {
	for _, c := range []struct {
		name   string
		mtu    int // of the device lte
		first  uint16
		masque bool
		route  bool // backend, whose program does not search
		most   int  // bytes of the largest IP packet of the session that may leave
	}{
		{"masque beside a device", 1500, 1280, true, false, 1452 - 39 + 28},
		{"narrow masque beside a device", 1400, 1280, true, false, 1372 - 39 + 28},
		{"devices of 1500 and 1280", 1280, 1200, false, false, 1280},
		{"devices of 1500 and 1280, by the backend route", 1280, 1200, false, true, 1280},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := lab.ThreeWays()
			for i := range spec.Links {
				if spec.Links[i].Name == "lte" {
					spec.Links[i].MTU = c.mtu
				}
			}
			w := newWorld(t, labtest.WithBystander(spec))
			w.quicEcho("server", quicAt, c.first)
			every := "100ms"
			if c.route {
				every = "2s" // the server searches anew after each move, and first waits for five round trips
			}
			args := []string{"--via", "home=if:home", "--schedule", "round-robin", "--every", every}
			if c.masque {
				_, place, secret := w.masque()
				args = append(append(args, secret...), "--via", "m="+place+"@lte", "--path", "lte=if:lte")
			} else {
				args = append(args, "--via", "lte=if:lte")
			}
			stop, quiet := w.watch("home-gw/client", "server/core"), labtest.Unchosen(t, w.Instance, "client/"+labtest.Bystander)
			var relay *peer.Process
			at, bound := relayAt, netip.MustParseAddrPort("127.0.0.1:0")
			if c.route {
				relay = w.start("client", "datagrams of at most ", append([]string{"split", "--backend", "route", "--to", quicAt.String()}, args...)...)
				at, bound = quicAt, netip.MustParseAddrPort("0.0.0.0:0")
			} else {
				relay = w.split(args...)
				w.await("the limit", relay, func() bool { return strings.Contains(relay.Log(), "datagrams of at most ") })
			}
			conn := w.quicDialFrom(bound, at, &quic.Config{InitialPacketSize: c.first, DisablePathMTUDiscovery: c.route})
			s := w.session()
			w.await("a search meets the limit", relay, func() bool {
				echoed(t, conn, 8<<20)
				s = w.session()
				return s.TooLarge > 0
			})
			if s.MTU < 1228 || s.MTU > c.most {
				t.Errorf("status says MTU %d", s.MTU)
			}
			if strings.Contains(relay.Log(), "dropped on every path") {
				t.Errorf("a search is taken for datagrams that never get smaller:\n%s", relay.Log())
			}
			quiet()
			for place, seen := range stop() {
				for _, p := range seen.Packets {
					if f := seen.Flows[p.Flow]; p.Out && f.Transport == "udp" && f.Server == quicAt && p.Size > c.most {
						t.Fatalf("%s saw a packet of %d bytes to the server", place, p.Size)
					}
				}
			}
		})
	}
}

// session returns what heddle says of the one session of the client.
func (w *world) session() (s struct {
	MTU      int    `json:"mtu"`
	TooLarge uint64 `json:"too_large"`
}) {
	w.t.Helper()
	out, err := w.Host("client").Command(w.t.Context(), labtest.Heddle, "status", "--json").Output()
	if err != nil {
		w.t.Fatal(err)
	}
	var all struct {
		Running []struct {
			Sessions []json.RawMessage `json:"sessions"`
		} `json:"running"`
	}
	if err := json.Unmarshal(out, &all); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range all.Running {
		for _, one := range r.Sessions {
			if err := json.Unmarshal(one, &s); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return s
}

// A tunnel of WireGuard fits its paths also when one becomes narrower, and grows again up to the MTU of its file.
func TestUpFollowsTheMTUOfItsPaths(t *testing.T) {
	w := newWorld(t, labtest.WithBystander(lab.ThreeWaysUnlimited()))
	quiet := labtest.Unchosen(t, w.Instance, "client/"+labtest.Bystander)
	file := filepath.Join(w.dir, "vpn.conf")
	_, err := peer.WireGuardServer(t.Context(), w.Host("server"), peer.WireGuardConfig{Endpoint: netip.AddrPortFrom(lab.ServerAddr, 51820), File: file,
		MTU: 1440, Allowed: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}})
	if err != nil {
		t.Fatal(err)
	}
	set := func(mtu int) {
		t.Helper()
		err := w.Host("client").Do(func() error {
			link, err := netlink.LinkByName("lte")
			if err == nil {
				err = netlink.LinkSetMTU(link, mtu)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	set(1492)
	up := w.start("client", " is up: ", "up", file, "--via", "home=if:home", "--via", "lte=if:lte")
	for _, want := range []string{"the MTU of the tunnel is 1432 instead of 1440, since path lte carries packets of 1492 bytes", ", MTU 1432"} {
		w.await(want, up, func() bool { return strings.Contains(up.Log(), want) })
	}
	for _, c := range []struct{ path, tunnel int }{{1400, 1340}, {1500, 1432}} {
		set(c.path)
		w.await(fmt.Sprintf("an MTU of %d", c.tunnel), up, func() bool {
			var now int
			err := w.Host("client").Do(func() error {
				link, err := netlink.LinkByName("vpn")
				if err == nil {
					now = link.Attrs().MTU
				}
				return err
			})
			return err == nil && now == c.tunnel
		})
	}
	quiet()
}
