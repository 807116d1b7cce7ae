package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"

	"heddle/lab/peer"
)

// Addresses inside the tunnel; the web server and the resolver are on the server.
var (
	insideServer = netip.MustParseAddr("10.9.0.1")
	insideClient = netip.MustParseAddr("10.9.0.2")
)

const insideMTU = 1420

// loopbackRate, in bytes a second in curl's format, keeps curl busy while the schedule switches.
const loopbackRate = "5M"

// openLoopback makes the stage that needs no privileges: paths are source addresses of the loopback device. The server
// is the unmodified wireguard-go library in this process, with its own network stack behind it.
func (s *stage) openLoopback(ctx context.Context, root string) error {
	fmt.Fprintln(s.o.Talk, "start a WireGuard server, a web server and a resolver in this process")
	wg, settings, err := peer.NewWireGuard(peer.WireGuardConfig{
		Client: []netip.Prefix{netip.PrefixFrom(insideClient, 32)}, Allowed: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")},
		DNS: []netip.Addr{insideServer}, MTU: insideMTU,
	})
	if err != nil {
		return err
	}
	inside, stack, err := netstack.CreateNetTUN([]netip.Addr{insideServer}, nil, insideMTU)
	if err != nil {
		return err
	}
	server := device.NewDevice(inside, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	s.close = func() error {
		server.Close()
		return nil
	}
	if err := errors.Join(server.IpcSet(settings), server.Up()); err != nil {
		return err
	}
	at, err := listensAt(server)
	if err != nil {
		return err
	}
	if err := wg.WriteFile(s.file, at); err != nil {
		return err
	}
	s.phases = []phase{
		{0, "Heddle", "heddle", s.over("home=src:127.0.0.2", "lte=src:127.0.0.3", "office=src:127.0.0.4")},
		{1, "one network", "wireguard", s.over("home=src:127.0.0.2")},
	}
	s.finish = func(r *Result) {
		r.Notes = append(r.Notes, "Captured by Heddle's own taps, over loopback addresses in place of networks, curl limited to "+loopbackRate+"B/s.",
			"What a network sees of a session without a tunnel is shown when the demo runs as root.")
	}
	return s.serveInside(ctx, stack, root)
}

// listensAt returns the server's address and port.
func listensAt(server *device.Device) (at netip.AddrPort, err error) {
	settings, err := server.IpcGet()
	if err != nil {
		return at, err
	}
	_, port, _ := strings.Cut(settings, "listen_port=")
	port, _, _ = strings.Cut(port, "\n")
	return netip.ParseAddrPort("127.0.0.1:" + port)
}

// serveInside starts the servers behind the WireGuard server, until ctx ends.
func (s *stage) serveInside(ctx context.Context, stack *netstack.Net, root string) error {
	s.certificate = filepath.Join(s.work, "certificate.pem")
	key := filepath.Join(s.work, "key.pem")
	if err := peer.SelfSigned(s.certificate, key, names, []netip.Addr{insideServer}); err != nil {
		return err
	}
	socket, err := stack.ListenUDP(&net.UDPAddr{IP: insideServer.AsSlice(), Port: 53})
	if err != nil {
		return err
	}
	serveNames(ctx, socket, allAt(insideServer), nil)
	plain, err := stack.ListenTCP(&net.TCPAddr{Port: 80})
	if err != nil {
		return err
	}
	secure, err := stack.ListenTCP(&net.TCPAddr{Port: 443})
	if err != nil {
		return err
	}
	web := &http.Server{Handler: http.FileServer(http.Dir(root)), ReadHeaderTimeout: 10 * time.Second}
	go web.Serve(plain)
	go web.ServeTLS(secure, s.certificate, key)
	context.AfterFunc(ctx, func() { web.Close() })
	return nil
}

var listensOn = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)

// over runs the session with `heddle up` over the given paths; its own taps capture them.
func (s *stage) over(via ...string) func(context.Context, string, func(curl) error) error {
	return func(ctx context.Context, dir string, fetch func(curl) error) error {
		args := []string{"HEDDLE_RUN_DIR=" + filepath.Join(s.work, "run"), s.o.Heddle, "up", s.file, "--socks", "127.0.0.1:0",
			"--capture", dir, "--schedule", "weighted", "--every", "100ms"}
		for _, v := range via {
			args = append(args, "--via", v)
		}
		up := func() (*peer.Process, error) { return peer.StartHere(ctx, "env", args...) }
		return s.withHeddle(ctx, up, func(said string) error {
			proxy := listensOn.FindString(said)
			if proxy == "" {
				return fmt.Errorf("it does not say where it listens: %s", said)
			}
			return fetch(func(ctx context.Context, args ...string) *exec.Cmd {
				return exec.CommandContext(ctx, "curl", append([]string{"--proxy", "socks5h://" + proxy, "--cacert", s.certificate,
					"--limit-rate", loopbackRate}, args...)...)
			})
		})
	}
}
