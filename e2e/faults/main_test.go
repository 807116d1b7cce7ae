package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/observe"
)

var (
	largeBytes int64 = 12 << 20
)

func TestMain(m *testing.M) { labtest.Main(m) }

// office is a world with a WireGuard server, a web host behind it, and a client's wg-quick file.
type office struct {
	*lab.Instance
	t      *testing.T
	dir    string
	file   string
	server *peer.WireGuard
}

func newOffice(t *testing.T, w lab.World) *office {
	t.Helper()
	t.Parallel()
	return layOffice(t, w)
}

func layOffice(t *testing.T, w lab.World) *office {
	t.Helper()
	in := labtest.Up(t, w)
	o := &office{Instance: in, t: t, dir: t.TempDir()}
	o.file = filepath.Join(o.dir, "vpn.conf")
	var err error
	o.server, err = peer.WireGuardServer(t.Context(), in.Host("server"), peer.WireGuardConfig{
		Endpoint: netip.AddrPortFrom(lab.ServerAddr, 51820), File: o.file})
	if err != nil {
		t.Fatal(err)
	}
	root, work := filepath.Join(o.dir, "site"), filepath.Join(o.dir, "web")
	if err := errors.Join(os.Mkdir(work, 0o755), os.Chmod(o.dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Site(root, largeBytes); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.WebServer(t.Context(), in.Host("web"), root, work, "web.example"); err != nil {
		t.Fatal(err)
	}
	return o
}

// heddle runs a heddle command in the client and waits for it.
func (o *office) heddle(args ...string) (string, error) {
	out, err := o.Host("client").Command(o.t.Context(), labtest.Heddle, args...).CombinedOutput()
	return string(out), err
}

// running is a `heddle up` in the client.
type running struct {
	*peer.Process
	o *office
}

// via are the flags of the three access networks.
var via = []string{"--via", "home=if:home", "--via", "lte=if:lte", "--via", "office=if:office"}

// up starts `heddle up` over all three networks and waits until it runs.
func (o *office) up(args ...string) *running {
	o.t.Helper()
	r := o.start(append(slices.Clone(via), args...)...)
	r.await(time.Minute, func(s status) bool { return s.State == "running" && s.device(o) })
	ctx, cancel := context.WithTimeout(o.t.Context(), time.Minute)
	defer cancel()
	if err := r.AwaitLog(ctx, " is up: "); err != nil { // its routes come after the device
		o.t.Fatal(err, r.Log())
	}
	return r
}

func (o *office) start(args ...string) *running {
	o.t.Helper()
	p, err := peer.Start(o.t.Context(), o.Host("client"), labtest.Heddle, append([]string{"up", o.file}, args...)...)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(p.Stop)
	return &running{p, o}
}

// status is what these tests read of `heddle status --json`.
type status struct {
	State   string  `json:"state"`
	Why     string  `json:"why"`
	Refused uint64  `json:"refused"`
	Paths   []pathS `json:"paths"`
}

type pathS struct {
	Name    string         `json:"name"`
	State   string         `json:"state"`
	Why     string         `json:"why"`
	Address netip.AddrPort `json:"address"`
	Weight  float64        `json:"weight"`
	Up      struct {
		Packets uint64 `json:"packets"`
	} `json:"up"`
	Down struct {
		Bytes uint64  `json:"bytes"`
		Share float64 `json:"share"`
	} `json:"down"`
}

func (s status) path(name string) pathS {
	for _, p := range s.Paths {
		if p.Name == name {
			return p
		}
	}
	return pathS{}
}

// device reports whether the tunnel's device is there and up.
func (s status) device(o *office) bool {
	return o.Host("client").Command(o.t.Context(), "ip", "route", "get", lab.WebAddr.String(), "oif", "vpn").Run() == nil
}

func (r *running) status() (status, error) {
	out, err := r.o.Host("client").Command(r.o.t.Context(), labtest.Heddle, "status", "vpn", "--json").Output()
	if err != nil {
		return status{}, fmt.Errorf("heddle status: %w", err)
	}
	var all struct {
		Running []struct {
			Sessions []status `json:"sessions"`
		} `json:"running"`
	}
	if err := json.Unmarshal(out, &all); err != nil || len(all.Running) != 1 || len(all.Running[0].Sessions) != 1 {
		return status{}, fmt.Errorf("heddle status printed %s: %v", out, err)
	}
	return all.Running[0].Sessions[0], nil
}

// await asks for the status until it is as wanted.
func (r *running) await(most time.Duration, wanted func(status) bool) status {
	r.o.t.Helper()
	for end := time.Now().Add(most); ; time.Sleep(100 * time.Millisecond) {
		s, err := r.status()
		if err == nil && wanted(s) {
			return s
		}
		select {
		case <-r.Done():
			r.o.t.Fatalf("heddle up ended:\n%s", r.Log())
		default:
		}
		if time.Now().After(end) {
			r.o.t.Fatalf("after %v: %+v, %v\n%s", most, s, err, r.Log())
		}
	}
}

// fetch downloads the large file through the tunnel with curl; wait gives its error.
func (o *office) fetch(limit time.Duration) (wait func() error) {
	ctx, cancel := context.WithTimeout(o.t.Context(), limit)
	file := filepath.Join(o.dir, fmt.Sprintf("fetched-%d", time.Now().UnixNano()))
	cmd := o.Host("client").Command(ctx, "curl", "-sS", "--fail", "-o", file, "http://"+lab.WebAddr.String()+"/large.bin")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	return sync.OnceValue(func() error {
		defer cancel()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("curl: %w: %s", err, &stderr)
		}
		info, err := os.Stat(file)
		if err == nil && info.Size() != largeBytes {
			err = fmt.Errorf("%d bytes came of %d", info.Size(), largeBytes)
		}
		return err
	})
}

// watch captures at the client's device of each access network, where the order of packets is the client's own.
func (o *office) watch(ways ...string) (stop func() map[string][]observe.Packet) {
	o.t.Helper()
	dir, places := o.t.TempDir(), map[string]string{}
	for _, way := range ways {
		places[way] = "client/" + way
	}
	end := labtest.Capture(o.t, o.Instance, dir, places)
	return sync.OnceValue(func() map[string][]observe.Packet {
		end()
		out := map[string][]observe.Packet{}
		for way := range places {
			out[way] = o.read(labtest.File(dir, way), nil)
		}
		return out
	})
}

// read reads a capture of the tunnel, given the client's addresses where the capture does not tell them.
func (o *office) read(file string, clients []netip.Addr) []observe.Packet {
	o.t.Helper()
	c := labtest.Read(o.t, file, clients)
	var tunnel []observe.Packet // without the neighbour discovery and the like of the machine itself
	for _, p := range c.Packets {
		if c.Flows[p.Flow].Server.Port() == 51820 {
			tunnel = append(tunnel, p)
		}
	}
	return tunnel
}

// pid is the process of the running heddle, as text.
func (o *office) pid() string {
	o.t.Helper()
	s, err := os.ReadFile(filepath.Join(o.Host("client").RunDir(), "vpn.lock"))
	if err != nil {
		o.t.Fatal(err)
	}
	return strings.TrimSpace(string(s))
}

// kill ends a process without giving it a chance.
func (r *running) kill() {
	pid, err := strconv.Atoi(r.o.pid())
	if err != nil {
		r.o.t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		r.o.t.Fatal(err)
	}
	<-r.Done()
}

// descriptors counts the open files of the running heddle.
func descriptors(t *testing.T, o *office) int {
	t.Helper()
	open, err := os.ReadDir(filepath.Join("/proc", o.pid(), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

func portOf(a netip.AddrPort) string { return fmt.Sprint(a.Port()) }
