package stream

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/miekg/dns"

	"heddle/lab"
	"heddle/lab/labtest"
)

// named is a world whose server is also a nameserver, the only one that the client has.
func named(t *testing.T) labtest.Overlay {
	t.Helper()
	t.Parallel()
	w := lab.ThreeWaysUnlimited()
	for i := range w.Hosts {
		w.Hosts[i].Nameservers = []netip.Addr{lab.ServerAddr}
	}
	o := labtest.UpOverlay(t, w)
	var socket net.PacketConn
	if err := o.Host("server").Do(func() (err error) {
		socket, err = net.ListenPacket("udp4", netip.AddrPortFrom(lab.ServerAddr, 53).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: socket, Handler: dns.HandlerFunc(func(answer dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		if at := q.Question[0]; at.Qtype == dns.TypeA && at.Name == "peer.example." {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: at.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: lab.ServerAddr.AsSlice()})
		}
		_ = answer.WriteMsg(m)
	})}
	go func() { _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown() })
	return o
}

// questions watches the client's devices until stop, which gives how many packets of DNS each carried, and of IP in all but those
// of neighbours.
func questions(t *testing.T, o labtest.Overlay) (stop func() (dnsPackets, all map[string]int)) {
	t.Helper()
	stopped := labtest.Watch(t, o.Instance, "client/home", "client/lte", "client/office")
	return func() (map[string]int, map[string]int) {
		t.Helper()
		asked, all := map[string]int{}, map[string]int{}
		for place, packets := range stopped() {
			device := strings.TrimPrefix(place, "client/")
			for _, p := range packets {
				udp, isUDP := p.TransportLayer().(*layers.UDP)
				tcp, isTCP := p.TransportLayer().(*layers.TCP)
				if isUDP && (udp.SrcPort == 53 || udp.DstPort == 53) || isTCP && (tcp.SrcPort == 53 || tcp.DstPort == 53) {
					asked[device]++
				}
				if isUDP || isTCP || p.Layer(layers.LayerTypeICMPv4) != nil {
					all[device]++
				}
			}
		}
		return asked, all
	}
}

// The default route is that of home. The client asks for the peer's name over the chosen paths, and home sees
// none of these questions.
func TestNameIsAskedOverThePaths(t *testing.T) {
	o := named(t)
	o.StreamServer("server", streamAt, "stream", "serve", "--name", "sink", "--to", "127.0.0.1:9")
	stop := questions(t, o)
	p := o.Start("client", "is up", "stream", "dial", "sink", "--listen", "127.0.0.1:2222", "--to", "peer.example:4470", "--key", o.Key("server"),
		"--via", "lte=if:lte", "--via", "office=if:office")
	asked, all := stop()
	if asked["home"] != 0 || all["home"] != 0 || asked["lte"] == 0 || asked["office"] == 0 {
		t.Errorf("packets of DNS by network: %v; of all: %v\n%s", asked, all, p.Log())
	}
	if want := "claim: the name peer.example is asked of this machine's nameservers over lte, office; "; !strings.Contains(p.Log(), want) {
		t.Errorf("it does not say %q:\n%s", want, p.Log())
	}
}

// The kernel needs the peer's address here, and so it is asked over what the nodes ride: a path, or this machine's own routes.
func TestNameForTheKernelIsAskedOverTheBase(t *testing.T) {
	for network, via := range map[string][]string{
		"lte":  {"--path", "lte=if:lte", "--via", "a=node:n@lte"},
		"home": {"--via", "a=node:n"},
	} {
		t.Run(network, func(t *testing.T) {
			o := named(t)
			o.Pass("n", "server", lab.ServerAddr) // no node runs there
			stop := questions(t, o)
			_, talk, err := o.Try("client", "", append([]string{"stream", "dial", "sink", "--backend", "mptcp", "--listen", "127.0.0.1:2222", "--to", "peer.example:4470",
				"--key", o.Key("server"), "--patience", "2s"}, via...)...)
			asked, all := stop()
			for _, device := range []string{"home", "lte", "office"} {
				if used := asked[device] != 0; used != (device == network) || !used && all[device] != 0 {
					t.Errorf("packets of DNS by network: %v; of all: %v", asked, all)
				}
			}
			if err == nil || strings.Contains(talk, "cannot be looked up") {
				t.Errorf("%v\n%s", err, talk)
			}
		})
	}
}
