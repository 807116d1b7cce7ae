package pathkinds

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// Where the ways out are, and what they give to a client that leaves by them.
var (
	tunnelAt  = netip.AddrPortFrom(lab.ServerAddr, 51820)
	vpnAt     = netip.MustParseAddrPort("203.0.113.2:51820")
	proxyAt   = netip.MustParseAddrPort("203.0.113.6:1080")
	openvpnAt = netip.MustParseAddrPort("203.0.113.10:1194")

	insideVPN     = netip.MustParseAddr("10.9.0.2")
	insideOpenVPN = netip.MustParsePrefix("10.8.0.2/32")
	insideSession = netip.MustParsePrefix("10.77.0.2/32")
)

const sessionMTU = 1280 // so that the session's packets fit a tunnel whole

// waysOut is threeways without limits, with three hosts at core that packets may leave by:
//
//	              +-----+ .2  203.0.113.0/30
//	      +-------| vpn |     the client is 10.9.0.2 behind it
//	      |       +-----+
//	+------+      +-------+ .6  203.0.113.4/30
//	| core |------| proxy |
//	+------+      +-------+
//	      |       +---------+ .10  203.0.113.8/30
//	      +-------| openvpn |      the client is 10.8.0.2 behind it
//	              +---------+
func waysOut() lab.World {
	w := lab.ThreeWaysUnlimited()
	w.Name = "tunnels"
	core := slices.IndexFunc(w.Hosts, func(h lab.HostSpec) bool { return h.Name == "core" })
	for i, name := range []string{"vpn", "proxy", "openvpn"} {
		near := netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", 4*i+1))
		w.Links = append(w.Links, lab.LinkSpec{Name: name,
			A: lab.End{Host: "core", Device: name, Addrs: []netip.Prefix{netip.PrefixFrom(near, 30)}},
			B: lab.End{Host: name, Device: "core", Addrs: []netip.Prefix{netip.PrefixFrom(near.Next(), 30)}}})
		w.Hosts = append(w.Hosts, lab.HostSpec{Name: name, Router: true,
			Routes: []lab.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: near, Device: "core"}}})
	}
	w.Hosts[core].Routes = append(slices.Clone(w.Hosts[core].Routes),
		lab.Route{To: netip.PrefixFrom(insideVPN, 32), Via: vpnAt.Addr(), Device: "vpn"},
		lab.Route{To: insideOpenVPN, Via: openvpnAt.Addr(), Device: "openvpn"})
	return w
}

// tunnels is waysOut with a WireGuard server behind which a web host is, and a tunnel's server on vpn.
type tunnels struct {
	*world
	file  string          // of the tunnel, for the client
	far   *peer.WireGuard // the session's server
	large []byte
}

func newTunnels(t *testing.T) *tunnels {
	t.Helper()
	w := &tunnels{world: newWorld(t, waysOut())}
	w.file = filepath.Join(w.dir, "tunnel.conf")
	_, err := peer.WireGuardServer(t.Context(), w.Host("vpn"), peer.WireGuardConfig{Endpoint: vpnAt, File: w.file})
	if err != nil {
		t.Fatal(err)
	}
	w.far, err = peer.WireGuardServer(t.Context(), w.Host("server"), peer.WireGuardConfig{Endpoint: tunnelAt, MTU: sessionMTU,
		Server: []netip.Prefix{netip.MustParsePrefix("10.77.0.1/24")}, Client: []netip.Prefix{insideSession},
		Allowed: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}})
	if err != nil {
		t.Fatal(err)
	}
	w.web()
	return w
}

// in is the same world for a subtest.
func (w *tunnels) in(t *testing.T) *tunnels {
	common, copied := *w.world, *w
	common.t, copied.world = t, &common
	return &copied
}

// web serves one large file behind the session's server.
func (w *tunnels) web() {
	root, work := filepath.Join(w.dir, "site"), filepath.Join(w.dir, "web")
	if err := os.Mkdir(work, 0o755); err != nil {
		w.t.Fatal(err)
	}
	if _, err := peer.Site(root, 4<<20); err != nil {
		w.t.Fatal(err)
	}
	if _, err := peer.WebServer(w.t.Context(), w.Host("web"), root, work, "web.example"); err != nil {
		w.t.Fatal(err)
	}
	var err error
	if w.large, err = os.ReadFile(filepath.Join(root, "large.bin")); err != nil {
		w.t.Fatal(err)
	}
}

// relay is a `heddle split` in the client.
type relay struct {
	*peer.Process
	w *tunnels
}

func (w *tunnels) split(args ...string) *relay {
	w.t.Helper()
	args = append([]string{"split", "--listen", relayAt.String(), "--to", tunnelAt.String(), "--name", "tunnels"}, args...)
	p, err := peer.Start(w.t.Context(), w.Host("client"), labtest.Heddle, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Stop)
	return &relay{p, w}
}

// session starts wireguard-go as the client of the session, by way of the relay.
func (w *tunnels) session() *peer.Process {
	w.t.Helper()
	p, err := w.far.Client(w.t.Context(), w.Host("client"), relayAt)
	return w.need(p, err)
}

// fetch downloads the large file inside the session, and compares it.
func (w *tunnels) fetch() error {
	file := filepath.Join(w.dir, fmt.Sprintf("fetched-%d", time.Now().UnixNano()))
	out, err := w.Host("client").Command(w.t.Context(), "curl", "-sS", "--fail", "--max-time", "60", "-o", file,
		"http://"+lab.WebAddr.String()+"/large.bin").CombinedOutput()
	if err != nil {
		return fmt.Errorf("curl: %w: %s", err, out)
	}
	got, err := os.ReadFile(file)
	if err == nil && string(got) != string(w.large) {
		err = fmt.Errorf("%d bytes came of %d, or others", len(got), len(w.large))
	}
	return err
}

// pathStatus is what these tests read of a path in `heddle status --json`.
type pathStatus struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Why   string `json:"why"`
	Hint  string `json:"hint"`
}

// await asks for the session's paths until they are as wanted.
func (r *relay) await(wanted func(map[string]pathStatus) bool) map[string]pathStatus {
	r.w.t.Helper()
	var last string
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out, err := r.w.Host("client").Command(r.w.t.Context(), labtest.Heddle, "status", "tunnels", "--json").CombinedOutput()
		last = fmt.Sprintf("%s, %v", out, err)
		var all struct {
			Running []struct {
				Sessions []struct {
					Paths []pathStatus `json:"paths"`
				} `json:"sessions"`
			} `json:"running"`
		}
		if err == nil && json.Unmarshal(out, &all) == nil && len(all.Running) == 1 && len(all.Running[0].Sessions) > 0 {
			paths := map[string]pathStatus{}
			for _, p := range all.Running[0].Sessions[0].Paths {
				paths[p.Name] = p
			}
			if wanted(paths) {
				return paths
			}
		}
		select {
		case <-r.Done():
			r.w.t.Fatalf("heddle split ended:\n%s", r.Log())
		default:
		}
		if time.Now().After(end) {
			r.w.t.Fatalf("%s\n%s", last, r.Log())
		}
	}
}

// up reports whether all paths are.
func up(paths map[string]pathStatus) bool {
	for _, p := range paths {
		if p.State != "up" {
			return false
		}
	}
	return true
}
