package resolve

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"heddle/path"
)

// Time limits of one question: to open a flow, possibly with a tunnel, and to get the answer.
const (
	openPatience = 5 * time.Second
	askPatience  = 2 * time.Second
)

// errOpening means that opening a flow took too long. Another nameserver would take as long.
var errOpening = errors.New("the path could not be opened in time")

// resolvConfs name this machine's nameservers. If the first has only the stub of systemd-resolved, the second has its
// upstream servers (systemd-resolved.service(8)).
var resolvConfs = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// Nameservers returns this machine's nameservers that a path could reach. Call it before a full tunnel replaces them.
func Nameservers() []netip.AddrPort { return nameserversOf(resolvConfs...) }

// nameserversOf reads the nameservers of the first file that has any. A stub on loopback does not count.
func nameserversOf(files ...string) []netip.AddrPort {
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

// ByPath asks the nameservers over one path. Through a full tunnel, this machine's own resolver would depend on the tunnel,
// which may be broken. The path's network sees the name.
func ByPath(ctx context.Context, p path.Path, nameservers []netip.AddrPort, s Server) ([]netip.AddrPort, error) {
	failed := errors.New("no nameserver that a path can reach")
	for _, nameserver := range nameservers {
		failed = &path.Error{What: "server " + s.Host, Why: "the nameserver " + nameserver.Addr().String() + " gives no address for its name",
			Hint: "check the name, or write the address"}
		var found []netip.Addr
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
			addresses, err := query(ctx, p, nameserver, s.Host, kind)
			if err != nil {
				failed = err
			}
			if errors.Is(err, errOpening) {
				return nil, err
			}
			found = append(found, addresses...)
		}
		if len(found) > 0 {
			return s.At(found), nil
		}
	}
	return nil, failed
}

// query asks one nameserver one question over UDP (RFC 1035).
func query(ctx context.Context, p path.Path, server netip.AddrPort, host string, kind uint16) ([]netip.Addr, error) {
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(host), kind)
	packed, err := question.Pack()
	if err != nil {
		return nil, err
	}
	opening, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	flow, err := path.Open(opening, p, server)
	if err != nil && opening.Err() != nil {
		return nil, errors.Join(errOpening, err)
	} else if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, askPatience)
	defer stop()
	defer flow.Close()
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

// answers returns the addresses in a nameserver's answer, or false if it does not answer this question.
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
