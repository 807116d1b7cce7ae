package stream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) { labtest.Main(m) }

const (
	serverAt   = "192.0.2.1"
	streamPort = "4470"
	nodePort   = "7443"
)

// nodes are the overlay nodes, each with the uplink of the client that leads to it.
var nodes = []struct {
	name, uplink, path string
	delay              time.Duration
}{
	{"n1", "home", "a", 5 * time.Millisecond},
	{"n2", "lte", "b", 15 * time.Millisecond},
	{"n3", "home", "c", 10 * time.Millisecond},
}

// overlay is
//
//	          home  +------+----| n1 |----+
//	     ,----------| isp1 |              |
//	+--------+      +------+----| n3 |----+------+   +--------+
//	| client |                            | core |---| server |
//	+--------+      +------+              +------+   +--------+
//	     '----------| isp2 |----| n2 |----+          192.0.2.1
//	          lte   +------+
//
// where what is between an isp and a node has 15 Mbit/s. The core knows no way to the client, so that nothing goes but
// by the nodes.
func overlay() lab.World {
	prefix := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
	route := func(to, via, device string, metric int) lab.Route {
		return lab.Route{To: netip.MustParsePrefix(to), Via: netip.MustParseAddr(via), Device: device, Metric: metric}
	}
	const everywhere = "0.0.0.0/0"
	w := lab.World{Name: "stream", About: "client with two uplinks, three overlay nodes, server", Client: "client", Hosts: []lab.HostSpec{
		{Name: "client", Routes: []lab.Route{route(everywhere, "10.1.0.1", "home", 100), route(everywhere, "10.2.0.1", "lte", 200)}},
		{Name: "isp1", Router: true}, {Name: "isp2", Router: true}, {Name: "core", Router: true},
		{Name: "server", Routes: []lab.Route{route(everywhere, "192.0.2.254", "core", 0)}},
	}, Links: []lab.LinkSpec{
		{Name: "home", A: lab.End{Host: "client", Device: "home", Addrs: prefix("10.1.0.2/24")}, B: lab.End{Host: "isp1", Device: "client", Addrs: prefix("10.1.0.1/24")}},
		{Name: "lte", A: lab.End{Host: "client", Device: "lte", Addrs: prefix("10.2.0.2/24")}, B: lab.End{Host: "isp2", Device: "client", Addrs: prefix("10.2.0.1/24")}},
		{Name: "server", A: lab.End{Host: "core", Device: "server", Addrs: prefix("192.0.2.254/24")}, B: lab.End{Host: "server", Device: "core", Addrs: prefix(serverAt + "/24")}},
	}}
	for i, n := range nodes {
		isp, access := "isp1", "10.1.0.0/24"
		if n.uplink == "lte" {
			isp, access = "isp2", "10.2.0.0/24"
		}
		front, back := fmt.Sprintf("10.1%d.0.", i+1), fmt.Sprintf("10.2%d.0.", i+1)
		w.Hosts = append(w.Hosts, lab.HostSpec{Name: n.name, Routes: []lab.Route{route(access, front+"1", "front", 0), route(everywhere, back+"1", "back", 0)}})
		w.Links = append(w.Links,
			lab.LinkSpec{Name: n.name, A: lab.End{Host: isp, Device: n.name, Addrs: prefix(front + "1/24")},
				B: lab.End{Host: n.name, Device: "front", Addrs: prefix(front + "2/24")}}.Both(lab.Shape{Delay: n.delay, Rate: 15_000_000}),
			lab.LinkSpec{Name: n.name + "-core", A: lab.End{Host: n.name, Device: "back", Addrs: prefix(back + "2/24")},
				B: lab.End{Host: "core", Device: n.name, Addrs: prefix(back + "1/24")}})
	}
	return w
}

// world is the overlay with the identities of its hosts, nodes that run, and passes for the client.
type world struct {
	*lab.Instance
	t    *testing.T
	home map[string]string // HEDDLE_HOME by host
	key  map[string]string
	kill map[string]func() // a node, at once
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Instance: labtest.Up(t, overlay()), t: t, home: map[string]string{}, key: map[string]string{}, kill: map[string]func(){}}
	for _, host := range []string{"client", "server", "n1", "n2", "n3"} {
		w.home[host] = t.TempDir()
		w.key[host] = strings.TrimSpace(w.run(host, "node", "key"))
	}
	for i, n := range nodes {
		w.startNode(n.name)
		// The client is its own grantor: the nodes are its own.
		grant := w.run("client", "node", "grant", w.key["client"], "--until", "1h", "--to", serverAt+":"+streamPort,
			"--name", n.name, "--node", w.key[n.name], "--address", fmt.Sprintf("10.1%d.0.2:%s", i+1, nodePort))
		pass := filepath.Join(t.TempDir(), n.name+".json")
		if err := os.WriteFile(pass, []byte(grant), 0o600); err != nil {
			t.Fatal(err)
		}
		w.run("client", "node", "add", pass)
	}
	return w
}

// arguments runs heddle with a host's own settings.
func (w *world) arguments(host string, args []string) (string, []string) {
	return "env", append([]string{"HEDDLE_HOME=" + w.home[host], labtest.Heddle}, args...)
}

// run gives what heddle prints.
func (w *world) run(host string, args ...string) string {
	w.t.Helper()
	out, talk, err := w.try(host, args...)
	if err != nil {
		w.t.Fatalf("%s: heddle %s: %v\n%s", host, strings.Join(args, " "), err, talk)
	}
	return out
}

// try is run of what may fail.
func (w *world) try(host string, args ...string) (out, talk string, err error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 60*time.Second)
	defer cancel()
	name, all := w.arguments(host, args)
	cmd := w.Host(host).Command(ctx, name, all...)
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	return string(text), said.String(), err
}

// start starts heddle in a host, and waits until it says a word.
func (w *world) start(host, word string, args ...string) *peer.Process {
	w.t.Helper()
	name, all := w.arguments(host, args)
	p, err := peer.Start(w.t.Context(), w.Host(host), name, all...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Stop)
	if err := p.AwaitLog(w.t.Context(), word); err != nil {
		w.t.Fatalf("%s: %v", host, err)
	}
	return p
}

// startNode starts a node that can be killed.
func (w *world) startNode(host string) {
	w.t.Helper()
	name, all := w.arguments(host, []string{"node", "run", "--grantor", w.key["client"]})
	cmd := w.Host(host).Command(w.t.Context(), name, all...)
	file := filepath.Join(w.t.TempDir(), "log")
	log, err := os.Create(file)
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.kill[host] = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	w.t.Cleanup(w.kill[host])
	w.await(host+" listens", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "listen")
	})
}

// await polls until something holds.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	for end := time.Now().Add(40 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not within 40 s: %s", what)
		}
	}
}

// serveArgs and dialArgs are what both ends of a stream over all nodes are asked for.
func (w *world) serveArgs(args ...string) []string {
	return append(args, "--listen", ":"+streamPort, "--allow", w.key["client"])
}

func (w *world) dialArgs(args ...string) []string {
	args = append(args, "--to", serverAt+":"+streamPort, "--key", w.key["server"], "--path", "home=if:home", "--path", "lte=if:lte")
	for _, n := range nodes {
		args = append(args, "--via", n.path+"=node:"+n.name+"@"+n.uplink)
	}
	return args
}

// seen is what an observer between an isp and a node saw: bytes of TCP payload from the client's side and to it.
type seen struct{ up, down int }

// watch captures on the way to each node until stop, which gives what was seen by the name of the path.
func (w *world) watch() (stop func() map[string]seen) {
	w.t.Helper()
	dir := w.t.TempDir()
	running := map[string]*lab.Capture{}
	for _, n := range nodes {
		c, err := w.Capture(w.t.Context(), n.name, "front", filepath.Join(dir, n.path))
		if err != nil {
			w.t.Fatal(err)
		}
		running[n.path] = c
	}
	return func() map[string]seen {
		w.t.Helper()
		all := map[string]seen{}
		for path, c := range running {
			if n, err := c.Stop(); err != nil || n.Dropped > 0 {
				w.t.Errorf("capture of %s: %+v, %v", path, n, err)
			}
			var s seen
			for _, p := range labtest.Packets(w.t, filepath.Join(dir, path)) {
				ip, isIP := p.NetworkLayer().(*layers.IPv4)
				tcp, isTCP := p.TransportLayer().(*layers.TCP)
				if !isIP || !isTCP {
					continue
				}
				n := int(ip.Length) - 4*int(ip.IHL) - 4*int(tcp.DataOffset)
				if tcp.DstPort.String() == nodePort || fmt.Sprint(uint16(tcp.DstPort)) == nodePort {
					s.up += n
				} else {
					s.down += n
				}
			}
			all[path] = s
		}
		return all
	}
}

// ssh starts the unmodified sshd on the server, or skips the test where there is none.
func (w *world) ssh() *peer.SSH {
	w.t.Helper()
	s, err := peer.SSHServer(w.t.Context(), w.Host("server"), w.t.TempDir())
	if errors.Is(err, peer.ErrMissing) {
		w.t.Skip(err)
	} else if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Stop)
	return s
}

// tool runs a program of the machine in a host.
func (w *world) tool(host, name string, args ...string) (string, error) {
	w.t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		w.t.Skipf("%v: %s", peer.ErrMissing, name)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 60*time.Second)
	defer cancel()
	out, err := w.Host(host).Command(ctx, name, args...).CombinedOutput()
	return string(out), err
}
