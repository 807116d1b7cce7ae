package demo

import (
	"context"
	"net"
	"net/netip"

	"github.com/miekg/dns"
)

// serveNames answers DNS queries for some names on a socket, until ctx ends. others, if not nil, answers the rest.
func serveNames(ctx context.Context, socket net.PacketConn, names map[string]netip.Addr, others dns.Handler) {
	mux := dns.NewServeMux()
	if others != nil {
		mux.Handle(".", others)
	}
	for name, addr := range names {
		mux.HandleFunc(dns.Fqdn(name), func(w dns.ResponseWriter, asked *dns.Msg) {
			answer := new(dns.Msg).SetReply(asked)
			answer.Authoritative = true
			if q := asked.Question[0]; q.Qtype == dns.TypeA {
				header := dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}
				answer.Answer = []dns.RR{&dns.A{Hdr: header, A: addr.AsSlice()}}
			}
			_ = w.WriteMsg(answer) // a client without an answer asks again
		})
	}
	server := &dns.Server{PacketConn: socket, Handler: mux}
	go func() { _ = server.ActivateAndServe() }() // until Shutdown
	context.AfterFunc(ctx, func() { _ = server.Shutdown() })
}

// forward asks another nameserver, over connections that dial makes.
func forward(dial func() (net.Conn, error)) dns.HandlerFunc {
	return func(w dns.ResponseWriter, asked *dns.Msg) {
		c, err := dial()
		if err != nil {
			return // as for a packet that is lost
		}
		defer c.Close()
		answer, _, err := new(dns.Client).ExchangeWithConn(asked, &dns.Conn{Conn: c})
		if err == nil {
			_ = w.WriteMsg(answer)
		}
	}
}
