package demo

import (
	"context"
	"net"
	"net/netip"

	"github.com/miekg/dns"
)

// serveNames answers DNS queries for the web server's names on a socket, until ctx ends.
func serveNames(ctx context.Context, socket net.PacketConn, web netip.Addr) {
	mux := dns.NewServeMux()
	for _, n := range names {
		mux.HandleFunc(dns.Fqdn(n), func(w dns.ResponseWriter, asked *dns.Msg) {
			answer := new(dns.Msg).SetReply(asked)
			answer.Authoritative = true
			if q := asked.Question[0]; q.Qtype == dns.TypeA {
				header := dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}
				answer.Answer = []dns.RR{&dns.A{Hdr: header, A: web.AsSlice()}}
			}
			_ = w.WriteMsg(answer) // a client without an answer asks again
		})
	}
	server := &dns.Server{PacketConn: socket, Handler: mux}
	go func() { _ = server.ActivateAndServe() }() // until Shutdown
	context.AfterFunc(ctx, func() { _ = server.Shutdown() })
}
