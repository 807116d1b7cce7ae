package censor

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// talk is a TCP connection whose packets cross a judge.
type talk struct {
	t    *testing.T
	j    *judge
	next [2]uint32
}

func newTalk(t *testing.T, attacks ...string) *talk {
	t.Helper()
	c := &talk{t, newJudge(Options{Attacks: attacks}, time.Now), [2]uint32{100, 500}}
	c.open()
	return c
}

func (c *talk) open() {
	c.t.Helper()
	for _, p := range [][]byte{
		packet(c.t, client, server, &layers.TCP{SYN: true, Seq: c.next[fromClient] - 1}, nil),
		packet(c.t, server, client, &layers.TCP{SYN: true, ACK: true, Seq: c.next[fromServer] - 1, Ack: c.next[fromClient]}, nil),
	} {
		if pass, forged := c.j.packet(p); !pass || forged != nil {
			c.t.Fatal("the connection does not open")
		}
	}
}

// say sends a segment from one side. It returns what leaves the router, and what would without a censor.
func (c *talk) say(side int, payload []byte) (out [][]byte, plain []byte) {
	c.t.Helper()
	from, to := client, server
	if side == fromServer {
		from, to = to, from
	}
	plain = packet(c.t, from, to, &layers.TCP{ACK: true, Seq: c.next[side], Ack: c.next[1-side]}, payload)
	c.next[side] += uint32(len(payload))
	passes, out := c.j.packet(plain)
	if passes {
		out = append(out, plain)
	}
	return out, plain
}

// through says a segment that must pass as it is.
func (c *talk) through(side int, payload []byte) {
	c.t.Helper()
	if out, plain := c.say(side, payload); len(out) != 1 || !bytes.Equal(out[0], plain) {
		c.t.Fatalf("%d packets leave in place of one", len(out))
	}
}

// until says segments of 1,000 bytes from the server, as long as they pass as they are. It returns how many did.
func (c *talk) until() (passed int, out [][]byte) {
	c.t.Helper()
	for {
		var plain []byte
		if out, plain = c.say(fromServer, make([]byte, 1000)); len(out) != 1 || !bytes.Equal(out[0], plain) {
			return passed, out
		}
		if passed++; passed > 1000 {
			c.t.Fatal("the attack does not strike")
		}
	}
}

func decoded(t *testing.T, data []byte) *layers.TCP {
	t.Helper()
	tcp, ok := gopacket.NewPacket(data, layers.LayerTypeIPv4, gopacket.Default).TransportLayer().(*layers.TCP)
	if !ok {
		t.Fatal("no TCP")
	}
	return tcp
}

var noise = bytes.Repeat([]byte{0x0f, 0xe1, 0x99, 0x5a, 0xc3}, 50) // half of the bits, and few printable bytes

func TestFullyEncryptedIsCut(t *testing.T) {
	for name, first := range map[string][]byte{"": noise, "printable start": append([]byte("prefix"), noise...), "TLS": tlsHello(t, "web.example")} {
		c := newTalk(t, "encrypted")
		out, _ := c.say(fromClient, first)
		if cut := len(out) == 0; cut != (name == "") {
			t.Errorf("%q: cut: %v", name, cut)
		}
		out, _ = c.say(fromServer, noise)
		if cut := len(out) == 0; cut != (name == "") {
			t.Errorf("%q: what follows is cut: %v", name, cut)
		}
		c.say(fromClient, noise) // only the first one counts
		want := Struck{Attack: "encrypted"}
		if name == "" {
			want = Struck{"encrypted", 1, 1, 3}
		}
		if got := c.j.status.Attacks[0]; got != want {
			t.Errorf("%q: %+v", name, got)
		}
	}
}

func TestFreeze(t *testing.T) {
	c := newTalk(t, "freeze")
	for range 100 {
		c.through(fromClient, make([]byte, 1000)) // what the client sends does not count
	}
	passed, out := c.until()
	if passed != freezeAfter/1000 || len(out) != 0 {
		t.Errorf("%d segments passed, and then %d packets", passed, len(out))
	}
	if out, _ := c.say(fromClient, nil); len(out) != 0 {
		t.Error("a frozen connection carries acknowledgements")
	}
}

func TestRetransmissionsDoNotCount(t *testing.T) {
	c := newTalk(t, "freeze")
	for range 100 {
		c.next[fromServer] = 500
		c.through(fromServer, make([]byte, 1000))
	}
}

func TestEndedConnections(t *testing.T) {
	for name, want := range map[string]layers.TCP{"kill": {RST: true}, "truncate": {FIN: true}} {
		c := newTalk(t, name)
		passed, out := c.until()
		if passed != strikeAfter/1000 || len(out) != 2 {
			t.Fatalf("%s: %d segments passed, and then %d packets", name, passed, len(out))
		}
		onward, back := decoded(t, out[0]), decoded(t, out[1])
		if onward.RST != want.RST || back.RST != want.RST || onward.FIN != want.FIN || back.FIN != want.FIN {
			t.Errorf("%s: %+v, %+v", name, onward, back)
		}
		if onward.Seq != c.next[fromServer]-1000 || back.Seq != c.next[fromClient] || back.SrcPort != onward.DstPort {
			t.Errorf("%s: an end would ignore it: %+v, %+v", name, onward, back)
		}
		if name == "truncate" && len(onward.Payload) != 500 {
			t.Errorf("%d bytes of the last segment pass", len(onward.Payload))
		}
		if out, _ := c.say(fromServer, noise); len(out) != 0 {
			t.Errorf("%s: it goes on", name)
		}
	}
}

func TestFlip(t *testing.T) {
	c := newTalk(t, "flip")
	for range 3 { // each 100 kB
		passed, out := c.until()
		if passed != strikeAfter/1000-1 || len(out) != 1 {
			t.Fatalf("%d segments passed, and then %d packets", passed, len(out))
		}
		want := make([]byte, 1000)
		want[500] = 1
		// A packet with these bytes has the right checksum.
		if right := packet(t, server, client, &layers.TCP{ACK: true, Seq: c.next[fromServer] - 1000, Ack: c.next[fromClient]}, want); !bytes.Equal(out[0], right) {
			t.Errorf("%x\nwant %x", out[0], right)
		}
	}
}

func TestReorder(t *testing.T) {
	c := newTalk(t, "reorder")
	for range reorderEach - 1 {
		c.through(fromServer, noise)
	}
	held, first := c.say(fromServer, noise)
	c.through(fromClient, noise) // the other direction
	out, second := c.say(fromServer, noise)
	if len(held) != 0 || !slices.EqualFunc(out, [][]byte{second, first}, bytes.Equal) {
		t.Errorf("%d packets, and then %d", len(held), len(out))
	}
}

func TestDelayAndClients(t *testing.T) {
	c := newTalk(t, "delay")
	if c.through(fromClient, noise); !c.j.late {
		t.Error("it passes at once")
	}
	c.j.clients = []netip.Addr{netip.MustParseAddr("192.0.2.77")}
	if c.through(fromClient, noise); c.j.late {
		t.Error("a packet of others is delayed")
	}
	c.j.clients = []netip.Addr{server.Addr()}
	if c.through(fromClient, noise); !c.j.late {
		t.Error("a packet to a client passes at once")
	}
}

func TestProbedServers(t *testing.T) {
	c := newTalk(t, "probe")
	var asked []netip.AddrPort
	c.j.suspect = func(at netip.AddrPort, flight []byte) {
		if asked = append(asked, at); !bytes.Equal(flight, noise) {
			t.Errorf("the first flight is %x", flight)
		}
	}
	c.through(fromClient, noise)
	c.through(fromServer, noise)
	c.open()
	c.through(fromClient, noise)
	if !slices.Equal(asked, []netip.AddrPort{server}) {
		t.Errorf("probed: %v", asked)
	}
	c.j.probed[server] = true
	if out, _ := c.say(fromServer, noise); len(out) != 0 {
		t.Error("a server that answers is reached")
	}
}

// Connections that were there before the censor are left alone.
func TestOlderConnections(t *testing.T) {
	for _, a := range Attacks {
		c := &talk{t, newJudge(Options{Attacks: []string{a.Name}}, time.Now), [2]uint32{100, 500}}
		for range 300 {
			c.through(fromServer, make([]byte, 1000))
			c.through(fromClient, noise)
		}
	}
}
