package demo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"heddle/internal/netutil"
	"heddle/lab/peer"
)

// Addresses of loopback in place of networks. The observer relays each of them, and captures under the usual ports.
var (
	loopbackClient   = netip.MustParseAddr("127.0.0.1")
	loopbackGateway  = netip.MustParseAddr("127.0.0.2")
	loopbackResolver = netip.MustParseAddr("127.0.0.3")
)

// loopback is the stage that needs no privileges.
type loopback struct {
	*cloudStage
	tap   atomic.Pointer[tap]       // while the observer captures
	names netip.AddrPort            // the client's resolver, behind the observer
	at    map[string]netip.AddrPort // where the observer relays an address
	addrs map[string]netip.Addr     // of the sites, by name
}

// openLoopback makes the stage with loopback addresses, and a relay as observer.
func (s *cloudStage) openLoopback(ctx context.Context) error {
	fmt.Fprintln(s.Talk, "start a cloud with three sites on this machine")
	l := &loopback{cloudStage: s, at: map[string]netip.AddrPort{}, addrs: map[string]netip.Addr{}}
	here := peer.Here(s.Heddle, s.work)
	s.close = func() error {
		here.Stop()
		return nil
	}
	c, err := peer.NewLoopbackCloud(ctx, here, filepath.Join(s.work, "cloud"), loopbackGateway)
	if err != nil {
		return err
	}
	s.cloud = c.Cloud
	if _, err := c.Serve(ctx); err != nil {
		return err
	}
	sidecars, err := peer.FreePorts(ctx, len(cloudSites))
	if err != nil {
		return err
	}
	if err := l.relay(ctx, loopbackGateway, c.Gateway); err != nil {
		return err
	}
	for i, site := range cloudSites {
		if err := l.openSite(ctx, site, netip.AddrFrom4([4]byte{127, 0, 1, byte(i + 1)}), sidecars[i], c.Tenants); err != nil {
			return err
		}
	}
	if err := l.resolver(ctx, c.Nameserver); err != nil {
		return err
	}
	s.watch, s.curl, s.get = l.watch, l.curl, []string{"--connect", l.at[loopbackGateway.String()].String()}
	s.dial = func(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.at[at.Addr().String()].String())
	}
	s.notes = append(s.notes, "Loopback addresses stand in for networks. The observer is a relay, and its capture has the bytes that it relayed, "+
		"in packets that it made itself. `heddle pseudonym get` was told the address of the store, and looked no name up.")
	return nil
}

// openSite starts a site's own web server at an address, for plain text and for TLS, and its sidecar.
func (l *loopback) openSite(ctx context.Context, s site, at netip.Addr, sidecar, tenants netip.AddrPort) error {
	root := filepath.Join(l.work, s.host+"-site")
	if err := writeSite(root, s); err != nil {
		return err
	}
	certificate, key := filepath.Join(l.work, s.host+".pem"), filepath.Join(l.work, s.host+"-key.pem")
	if err := peer.SelfSigned(certificate, key, []string{s.name}, []netip.Addr{at}); err != nil {
		return err
	}
	l.certificates = append(l.certificates, certificate)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	plain, err := net.Listen("tcp", netip.AddrPortFrom(loopbackClient, 0).String())
	if err != nil {
		return err
	}
	secure, err := tls.Listen("tcp", netip.AddrPortFrom(loopbackClient, 0).String(), &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		return err
	}
	web := &http.Server{Handler: http.FileServer(http.Dir(root)), ReadHeaderTimeout: 10 * time.Second}
	go web.Serve(plain)
	go web.Serve(secure)
	context.AfterFunc(ctx, func() { web.Close() })
	l.addrs[s.name] = at
	if err := l.relay(ctx, at, netutil.AddrPort(secure.Addr())); err != nil {
		return err
	}
	_, err = l.cloud.Add(ctx, peer.Sidecar{Host: s.host, Site: s.name, Listen: sidecar, Store: tenants, To: "http://" + plain.Addr().String(), Flags: trusts(s)})
	return err
}

// relay relays connections to port 443 of an address to where its server really is.
func (l *loopback) relay(ctx context.Context, addr netip.Addr, to netip.AddrPort) error {
	in, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return err
	}
	l.at[addr.String()] = netutil.AddrPort(in.Addr())
	go netutil.Serve(ctx, in, func(c net.Conn) {
		go func() {
			defer c.Close()
			out, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
			if err != nil {
				return
			}
			defer out.Close()
			seen := l.tap.Load().connection(netutil.AddrPort(c.RemoteAddr()), netip.AddrPortFrom(addr, 443))
			_, _, _ = netutil.Pipe(ctx, netutil.Side{Reader: seen.tee(c, true), Writer: c}, netutil.Side{Reader: seen.tee(out, false), Writer: out},
				func(error) { c.Close(); out.Close() })
		}()
	})
	return nil
}

// resolver starts the client's resolver.
func (l *loopback) resolver(ctx context.Context, nameserver netip.AddrPort) error {
	socket, err := net.ListenPacket("udp", netip.AddrPortFrom(loopbackResolver, 0).String())
	if err != nil {
		return err
	}
	l.names = netutil.AddrPort(socket.LocalAddr())
	serveNames(ctx, socket, l.addrs, forward(func() (net.Conn, error) { return net.Dial("udp", nameserver.String()) }))
	return nil
}

// lookUp asks the resolver for the address of a name, in sight of the observer.
func (l *loopback) lookUp(ctx context.Context, name string) (netip.Addr, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", l.names.String())
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	client, server := netutil.AddrPort(c.LocalAddr()), netip.AddrPortFrom(loopbackResolver, 53)
	asked := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
	answer, _, err := new(dns.Client).ExchangeWithConn(asked, &dns.Conn{Conn: c})
	if err != nil {
		return netip.Addr{}, err
	}
	for _, m := range []struct {
		message  *dns.Msg
		from, to netip.AddrPort
	}{{asked, client, server}, {answer, server, client}} {
		packed, err := m.message.Pack()
		if err != nil {
			return netip.Addr{}, err
		}
		l.tap.Load().datagram(m.from, m.to, packed)
	}
	for _, record := range answer.Answer {
		if a, ok := record.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A.To4())
			return addr, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no address of %s", name)
}

// curl looks the name of the URL, the last argument, up and connects to the observer, who relays.
func (l *loopback) curl(ctx context.Context, args ...string) *exec.Cmd {
	to := loopbackResolver // where nothing listens
	if u, err := url.Parse(args[len(args)-1]); err == nil {
		if addr, err := l.lookUp(ctx, u.Hostname()); err == nil {
			to = addr
		}
	}
	return exec.CommandContext(ctx, "curl", slices.Concat([]string{"--noproxy", "*", "--connect-to", "::" + l.at[to.String()].String()}, args)...)
}

func (l *loopback) watch(_ context.Context, dir string, use func() error) error {
	t, err := newTap(filepath.Join(dir, "network.pcapng"))
	if err != nil {
		return err
	}
	l.tap.Store(t)
	used := use()
	l.tap.Store(nil)
	return errors.Join(used, t.close())
}
