package demo

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/miekg/dns"
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

// loopbackRate keeps curl from being done before the schedule has switched often, in bytes a second as curl reads it.
const loopbackRate = "5M"

// loopback is the stage that needs no rights: paths are source addresses of the loopback device, and the server is the
// unmodified wireguard-go library in this process, with a network stack of its own behind it.
type loopback struct {
	o           Options
	server      *device.Device
	names       *dns.Server
	web         *http.Server
	file        string // the client's wg-quick file
	runDir      string
	certificate string
	list        []target
}

func openLoopback(_ context.Context, o Options, work string) (stage, error) {
	if err := needCurl(); err != nil {
		return nil, err
	}
	fmt.Fprintln(o.Talk, "start a WireGuard server, a web server and a resolver in this process")
	l := &loopback{o: o, file: filepath.Join(work, "work.conf"), runDir: filepath.Join(work, "run")}
	if err := l.serve(work); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *loopback) serve(work string) error {
	const mtu = 1420
	inside, stack, err := netstack.CreateNetTUN([]netip.Addr{insideServer}, nil, mtu)
	if err != nil {
		return err
	}
	l.server = device.NewDevice(inside, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	if err := l.keys(mtu); err != nil {
		return err
	}
	root := filepath.Join(work, "site")
	pages, err := peer.Site(root, l.o.Large)
	if err != nil {
		return err
	}
	l.list = targets(root, pages)
	return l.serveInside(stack, root, work)
}

// keys gives the server fresh keys, and writes the client's file.
func (l *loopback) keys(mtu int) error {
	server, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	client, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	err = l.server.IpcSet(fmt.Sprintf("private_key=%x\nlisten_port=0\npublic_key=%x\nallowed_ip=%s/32\n",
		server.Bytes(), client.PublicKey().Bytes(), insideClient))
	if err != nil {
		return err
	}
	if err := l.server.Up(); err != nil {
		return err
	}
	settings, err := l.server.IpcGet()
	if err != nil {
		return err
	}
	_, port, found := strings.Cut(settings, "listen_port=")
	if !found {
		return errors.New("the WireGuard server has no port")
	}
	port, _, _ = strings.Cut(port, "\n")
	key := base64.StdEncoding.EncodeToString
	text := fmt.Sprintf("[Interface]\nPrivateKey = %s\nAddress = %s/32\nDNS = %s\nMTU = %d\n\n"+
		"[Peer]\nPublicKey = %s\nEndpoint = 127.0.0.1:%s\nAllowedIPs = 0.0.0.0/0\n",
		key(client.Bytes()), insideClient, insideServer, mtu, key(server.PublicKey().Bytes()), port)
	return os.WriteFile(l.file, []byte(text), 0o600)
}

// serveInside starts what is behind the WireGuard server.
func (l *loopback) serveInside(stack *netstack.Net, root, work string) error {
	l.certificate = filepath.Join(work, "certificate.pem")
	key := filepath.Join(work, "key.pem")
	if err := peer.SelfSigned(l.certificate, key, names, []netip.Addr{insideServer}); err != nil {
		return err
	}
	socket, err := stack.ListenUDP(&net.UDPAddr{IP: insideServer.AsSlice(), Port: 53})
	if err != nil {
		return err
	}
	l.names = serveNames(socket, insideServer)
	plain, err := stack.ListenTCP(&net.TCPAddr{Port: 80})
	if err != nil {
		return err
	}
	secure, err := stack.ListenTCP(&net.TCPAddr{Port: 443})
	if err != nil {
		return err
	}
	l.web = &http.Server{Handler: http.FileServer(http.Dir(root)), ReadHeaderTimeout: 10 * time.Second}
	go l.web.Serve(plain)
	go l.web.ServeTLS(secure, l.certificate, key)
	return nil
}

func (l *loopback) urls() []target { return l.list }

func (l *loopback) phases() []phase {
	return []phase{
		{0, "Heddle", "heddle", l.over("home=src:127.0.0.2", "lte=src:127.0.0.3", "office=src:127.0.0.4")},
		{1, "one network", "wireguard", l.over("home=src:127.0.0.2")},
	}
}

var listensOn = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)

// over holds the session with `heddle up` over the given paths, whose own taps capture.
func (l *loopback) over(via ...string) func(context.Context, string, func(curl) error) error {
	return func(ctx context.Context, dir string, fetch func(curl) error) error {
		args := []string{"up", l.file, "--socks", "127.0.0.1:0", "--capture", dir, "--schedule", "weighted", "--every", "100ms"}
		for _, v := range via {
			args = append(args, "--via", v)
		}
		cmd := exec.CommandContext(ctx, l.o.Heddle, args...)
		cmd.Env = append(os.Environ(), "HEDDLE_RUN_DIR="+l.runDir)
		return withHeddle(ctx, cmd, l.o.Talk, func(said string) error {
			proxy := listensOn.FindString(said)
			if proxy == "" {
				return fmt.Errorf("it does not say where it listens: %s", said)
			}
			return fetch(func(ctx context.Context, args ...string) *exec.Cmd {
				return exec.CommandContext(ctx, "curl", append([]string{"--proxy", "socks5h://" + proxy, "--cacert", l.certificate,
					"--limit-rate", loopbackRate}, args...)...)
			})
		})
	}
}

func (l *loopback) finish(r *Result) {
	r.Notes = append(r.Notes, "Captured by Heddle's own taps, over loopback addresses in place of networks, curl limited to "+loopbackRate+"B/s.",
		"What a network sees of a session without a tunnel is shown when the demo runs as root.")
}

func (l *loopback) close() error {
	if l.names != nil {
		_ = l.names.Shutdown()
	}
	if l.web != nil {
		_ = l.web.Close()
	}
	if l.server != nil {
		l.server.Close()
	}
	return nil
}
