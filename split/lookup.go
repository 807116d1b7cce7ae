package split

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"heddle/path"
)

const lookupPatience = 2 * time.Second

// resolvConfs name this machine's nameservers. Where the first names only systemd-resolved's stub, the second names
// those behind it (systemd-resolved.service(8)).
var resolvConfs = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// nameservers reads those that a path could reach, from the first file that names any: a stub on loopback is none.
func nameservers(files ...string) []netip.AddrPort {
	for _, file := range files {
		config, err := dns.ClientConfigFromFile(file)
		if err != nil {
			continue
		}
		var out []netip.AddrPort
		for _, text := range config.Servers {
			if a, err := netip.ParseAddr(text); err == nil && !a.IsLoopback() && a.Zone() == "" {
				out = append(out, netip.AddrPortFrom(a.Unmap(), 53))
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// lookupByPath asks the nameservers of before by one path: once a full tunnel is up, this machine's own resolver asks
// through the tunnel, which is no use where the tunnel is what must be mended. The path's network sees the name.
func lookupByPath(ctx context.Context, way path.Path, servers []netip.AddrPort, host string) ([]netip.Addr, error) {
	failed := errors.New("no nameserver that a path can reach")
	for _, server := range servers {
		var found []netip.Addr
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
			addresses, err := query(ctx, way, server, host, kind)
			if err != nil {
				failed = err
			}
			found = append(found, addresses...)
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, failed
}

// query asks one nameserver one question over UDP (RFC 1035).
func query(ctx context.Context, way path.Path, server netip.AddrPort, host string, kind uint16) ([]netip.Addr, error) {
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(host), kind)
	packed, err := question.Pack()
	if err != nil {
		return nil, err
	}
	flow, err := path.Open(ctx, way, server)
	if err != nil {
		return nil, err
	}
	defer flow.Close()
	patience := time.AfterFunc(lookupPatience, func() { flow.Close() })
	defer patience.Stop()
	defer context.AfterFunc(ctx, func() { flow.Close() })()
	if _, err := flow.Send([][]byte{packed}); err != nil {
		return nil, err
	}
	into := make([]path.Inbound, 1)
	for {
		n, err := flow.Receive(into)
		if errors.Is(err, net.ErrClosed) {
			return nil, errors.New("the nameserver " + server.String() + " does not answer")
		}
		if err != nil {
			return nil, err
		}
		if n == 1 && into[0].From == server {
			if found, ok := answers(question, into[0].Data); ok {
				return found, nil
			}
		}
	}
}

// answers reads the addresses from a nameserver's answer; false where it is none to this question.
func answers(question *dns.Msg, packed []byte) ([]netip.Addr, bool) {
	var answer dns.Msg
	if answer.Unpack(packed) != nil || !answer.Response || answer.Id != question.Id ||
		len(answer.Question) != 1 || answer.Question[0] != question.Question[0] {
		return nil, false
	}
	var found []netip.Addr
	for _, r := range answer.Answer {
		var raw net.IP
		switch r := r.(type) {
		case *dns.A:
			raw = r.A
		case *dns.AAAA:
			raw = r.AAAA
		}
		if a, ok := netip.AddrFromSlice(raw); ok {
			found = append(found, a.Unmap())
		}
	}
	return found, true
}
