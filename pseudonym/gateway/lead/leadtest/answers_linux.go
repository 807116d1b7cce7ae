package leadtest

import (
	"net"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"heddle/internal/nstest"
	"heddle/internal/tcprepair"
)

// RunDirect tests a kind of switch with tenants that answer past the gateway.
func RunDirect(t *testing.T, of func(*testing.T) Kind) {
	tests{
		{"TenantAnswers", tenantAnswers},
		{"PortIsUsedAgain", portIsUsedAgainDirectly},
		{"ForgedPackets", forgedPacketsDirectly},
		{"NarrowNetwork", narrowNetworkDirectly},
	}.run(t, of, NewDirectWorld)
}

// The tenant answers past the gateway, and the client sees the gateway's address alone, in packets as far away as the gateway's own.
func tenantAnswers(w *World) {
	t := w.t
	near, far := w.Moved()
	if got := far.RemoteAddr().String(); got != w.At.String() {
		t.Errorf("the tenant sees %v", got)
	}
	w.pass(near, far, 10<<20)
	var again Switch // a gateway that starts again goes on with what its switch has
	w.Gateway.Do(t, func() (err error) {
		again, err = w.kind.New()
		return err
	})
	defer again.Close()
	w.Talk(near, far)
	w.Finish(near, far)
	w.quiet()
	w.passedBy()
}

// vanish ends a socket without a packet.
func (w *World) vanish(c *net.TCPConn) {
	w.t.Helper()
	held, err := tcprepair.Hold(c)
	if err == nil {
		err = held.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// A client may use a port again at once, however its connection ended, and gets to the gateway.
func portIsUsedAgainDirectly(w *World) {
	const tenantHasIt = "the tenant has it"
	for name, end := range map[string]func(near, far *net.TCPConn){
		"both have ended it": w.Finish,
		"broken off":         w.breakOff,
		tenantHasIt:          func(near, _ *net.TCPConn) { w.vanish(near) },
		"nobody has it":      func(near, far *net.TCPConn) { w.vanish(near); w.vanish(far) },
	} {
		near, far := w.Moved()
		w.Talk(near, far)
		end(near, far)
		if has, err := w.has("direct"); err != nil || !has {
			w.t.Fatalf("%s: the switch has no such connection: %v", name, err)
		}
		again, at := w.dial()
		w.await("direct", false)
		w.Talk(again, at)
		w.Finish(again, at)
		if name == tenantHasIt {
			w.vanish(far) // as the agent does when the client's next connection comes
		}
		w.unnamed()
	}
}

// Packets that somebody forges in the client's name end nothing: he does not know what the gateway answered.
func forgedPacketsDirectly(w *World) {
	near, far := w.Moved()
	w.Talk(near, far)
	for _, flags := range []layers.TCP{{SYN: true}, {FIN: true, ACK: true}, {SYN: true}, {ACK: true, Ack: 1}, {RST: true}, {SYN: true}, {RST: true, ACK: true}} {
		w.forge(w.Public, flags, ownTTL)
	}
	w.Talk(near, far)
	if has, err := w.has("direct"); err != nil || !has {
		w.t.Errorf("forged packets ended the connection: %v", err)
	}
	w.unnamed()
}

// A network that gets narrower on the way to the client says so to the gateway's address. The tenant learns of it.
func narrowNetworkDirectly(w *World) {
	near, far := w.Moved()
	w.Talk(near, far)
	w.provider.Do(w.t, func() error { return nstest.Resize("client", 1300) })
	w.Client.Do(w.t, func() error { return nstest.Resize("net", 1300) })
	w.Talk(near, far)
	w.Finish(near, far)
	w.quiet()
	w.passedBy()
}
