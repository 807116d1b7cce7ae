package tunnel

import (
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	"golang.zx2c4.com/wireguard/device"

	"heddle/internal/polltest"
)

// nameserver is one on the server's machine that knows vpn.example. It answers when the test says so.
type nameserver struct {
	asked  chan net.Addr
	answer chan struct{}
}

// start serves in the present namespace.
func (n *nameserver) start(t *testing.T) {
	socket, err := net.ListenPacket("udp4", netip.AddrPortFrom(netip.MustParseAddr(serverAddress), 53).String())
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: socket, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		n.asked <- w.RemoteAddr()
		select {
		case <-n.answer:
		case <-t.Context().Done():
			return
		}
		m := new(dns.Msg)
		m.SetReply(q)
		m.RecursionAvailable = true // else an answer without an address is asked for again
		if r, err := dns.NewRR("vpn.example. 60 IN A " + serverAddress); err == nil && q.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, r)
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown() })
}

// The kill switch of a full tunnel is up while the server's name is looked up, also after a crash. Only the paths ask.
func TestKillSwitchDuringTheLookup(t *testing.T) {
	names := &nameserver{asked: make(chan net.Addr, 100), answer: make(chan struct{}, 100)}
	c := newClient(t, func(*device.Device) { names.start(t) })
	c.write(c.conf, strings.Replace(c.text(c.conf), serverAddress+":51820", "vpn.example:51820", 1))
	c.write(c.resolv, "nameserver "+serverAddress+"\noptions timeout:300\n")
	leaked, holds := c.watch()

	const claimed = "claim: the name vpn.example is asked of this machine's nameservers over the paths"
	for _, when := range []string{"at the first start", "at a start after a crash"} {
		r := c.start(claimed, "--no-hooks")
		by := map[string]int{}
		for range 4 { // by each path for IPv4 and for IPv6
			host, _, _ := net.SplitHostPort((<-names.asked).String())
			by[host]++
		}
		if by["10.77.1.2"] != 2 || by["10.77.2.2"] != 2 {
			t.Errorf("%s %v ask for the name", when, by)
		}
		leaked() // from before the claim
		holds("during the lookup " + when)
		if c.leaks() {
			t.Errorf("%s: a packet left during the lookup", when)
		}
		for range 4 {
			names.answer <- struct{}{}
		}
		polltest.Await(t, isUp, func() bool { return strings.Contains(r.out.String(), isUp) })
		if page, err := c.fetch(); page != "inside" {
			t.Errorf("%s: curl got %q, %v", when, page, err)
		}
		holds("while it is up")
		_ = r.signal(t, syscall.SIGKILL)
	}
	if out, err := c.run("down", c.name); err != nil {
		t.Errorf("down: %v, %s", err, out)
	}
}

// Without a nameserver that the paths can ask, up fails and says how to do without the lookup.
func TestKillSwitchAndANameserverOnThisMachine(t *testing.T) {
	c := newClient(t)
	c.write(c.conf, strings.Replace(c.text(c.conf), serverAddress+":51820", "vpn.example:51820", 1))
	c.write(c.resolv, "nameserver 127.0.0.1\n")
	out, err := c.run(c.upArguments()...)
	if err == nil || !strings.Contains(out, "this machine's nameserver is a program on it") || !strings.Contains(out, "--kill-switch=false") {
		t.Errorf("%v: %s", err, out)
	}
	if names := tables(t); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
}
