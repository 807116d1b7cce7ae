// Package resolvetest has a nameserver for tests of lookups. Do not import it outside tests.
package resolvetest

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// Nameserver serves these records of vpn.example by type, a line each, on loopback. The channel receives each client's address.
func Nameserver(t *testing.T, records map[uint16]string) (netip.AddrPort, <-chan net.Addr) {
	t.Helper()
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	from := make(chan net.Addr, 4)
	s := &dns.Server{PacketConn: server, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		from <- w.RemoteAddr()
		m := new(dns.Msg)
		m.SetReply(q)
		for line := range strings.Lines(records[q.Question[0].Qtype]) {
			if r, err := dns.NewRR(line); err == nil && r != nil && q.Question[0].Name == "vpn.example." {
				m.Answer = append(m.Answer, r)
			}
		}
		w.WriteMsg(m)
	})}
	go s.ActivateAndServe()
	t.Cleanup(func() { s.Shutdown() })
	return server.LocalAddr().(*net.UDPAddr).AddrPort(), from
}
