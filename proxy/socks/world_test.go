package socks

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/tun/netstack"

	"heddle/proxy/users"
)

// The tunnel of these tests is a wire in memory between two network stacks:
//
//	curl --- proxy --- near stack ===wire=== far stack: web server, DNS, UDP echo

var (
	nearAddresses = []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("fd00::2/128")}
	far4, far6    = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
)

type world struct {
	near, far *netstack.Net
	questions atomic.Int64 // that the DNS server inside got
}

func newWorld(t *testing.T, withDNS bool) *world {
	t.Helper()
	var servers []netip.Addr
	if withDNS {
		servers = []netip.Addr{far4}
	}
	near, nearNet, err := netstack.CreateNetTUN([]netip.Addr{nearAddresses[0].Addr(), nearAddresses[1].Addr()}, servers, 1420)
	if err != nil {
		t.Fatal(err)
	}
	far, farNet, err := netstack.CreateNetTUN([]netip.Addr{far4, far6}, nil, 1420)
	if err != nil {
		t.Fatal(err)
	}
	go carry(near, far)
	go carry(far, near)
	w := &world{near: nearNet, far: farNet}
	w.serveWeb(t)
	w.serveDNS(t)
	w.serveEcho(t)
	return w
}

// carry is one direction of the wire. It ends with the test's process: netstack cannot be closed while packets are
// under way.
func carry(from, to tun.Device) {
	buffer, sizes := [][]byte{make([]byte, 1500)}, []int{0}
	for {
		if _, err := from.Read(buffer, sizes, 0); err != nil {
			return
		}
		if _, err := to.Write([][]byte{buffer[0][:sizes[0]]}, 0); err != nil {
			return
		}
	}
}

func (w *world) serveWeb(t *testing.T) {
	t.Helper()
	web := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		body, _ := io.ReadAll(in.Body)
		fmt.Fprintf(out, "inside %s %d", in.Host, len(body))
	})}
	for _, addr := range []netip.Addr{far4, far6} {
		l, err := w.far.ListenTCPAddrPort(netip.AddrPortFrom(addr, 80))
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = web.Serve(l) }()
	}
	t.Cleanup(func() { web.Close() })
}

// serveDNS knows web.test, six.test and intranet.corp.test, and no other name.
func (w *world) serveDNS(t *testing.T) {
	t.Helper()
	c, err := w.far.ListenUDPAddrPort(netip.AddrPortFrom(far4, 53))
	if err != nil {
		t.Fatal(err)
	}
	records := map[string]string{"web.test. A": far4.String(), "six.test. AAAA": far6.String(), "intranet.corp.test. A": far4.String()}
	server := &dns.Server{PacketConn: c, Handler: dns.HandlerFunc(func(out dns.ResponseWriter, in *dns.Msg) {
		w.questions.Add(1)
		answer := new(dns.Msg).SetReply(in)
		q := in.Question[0]
		known := false
		for key, value := range records {
			name, kind, _ := strings.Cut(key, " ")
			known = known || name == strings.ToLower(q.Name)
			if name == strings.ToLower(q.Name) && kind == dns.TypeToString[q.Qtype] {
				rr, err := dns.NewRR(fmt.Sprintf("%s 60 IN %s %s", q.Name, kind, value))
				if err == nil {
					answer.Answer = append(answer.Answer, rr)
				}
			}
		}
		if !known {
			answer.Rcode = dns.RcodeNameError
		}
		_ = out.WriteMsg(answer)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
}

func (w *world) serveEcho(t *testing.T) {
	t.Helper()
	for _, addr := range []netip.Addr{far4, far6} {
		c, err := w.far.ListenUDPAddrPort(netip.AddrPortFrom(addr, 7))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			buffer := make([]byte, 2000)
			for {
				n, from, err := c.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = c.WriteTo(append([]byte("echo "), buffer[:n]...), from)
			}
		}()
	}
}

// notes gathers what is logged.
type notes struct {
	mu   sync.Mutex
	text strings.Builder
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// serve puts a proxy in front of the near stack and gives its address and its log.
func (w *world) serve(t *testing.T, edit func(*Tunnel)) (string, *notes) {
	t.Helper()
	return w.serveFor(t, nil, edit)
}

// serveFor does so for users.
func (w *world) serveFor(t *testing.T, who *users.Users, edit func(*Tunnel)) (string, *notes) {
	t.Helper()
	network := &Tunnel{Stack: w.near, Addresses: nearAddresses, Resolver: true, Search: []string{"corp.test"},
		Allowed: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}
	if edit != nil {
		edit(network)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := &notes{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- New(network, who, slog.New(slog.NewTextHandler(log, nil))).Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
	})
	return listener.Addr().String(), log
}

// curl runs an unmodified curl.
func curl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "curl", append([]string{"-sS", "--noproxy", "", "--max-time", "60"}, args...)...).CombinedOutput()
	return string(out), err
}
