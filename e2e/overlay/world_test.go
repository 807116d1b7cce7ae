package overlay

import (
	"io"
	"iter"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"heddle/lab"
	"heddle/lab/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// The nodes one and two are on the client's ways, as lab.Overlay draws them; the node exit is on core, beside the server.
const (
	exitAt  = "192.0.2.254:7443"
	relayAt = "127.0.0.1:4000"
)

var (
	server   = netip.AddrPortFrom(lab.ServerAddr, 7000)
	farNode  = map[string]string{"one": "10.100.1.1", "two": "10.100.2.1", "core": "192.0.2.254"} // as the server sees them
	nearNode = map[string]string{"one": lab.NodeAddr(0).String(), "two": lab.NodeAddr(1).String(), "core": "192.0.2.254"}
)

// world is the overlay with nodes that run.
type world struct {
	labtest.Overlay
	t *testing.T
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{labtest.UpOverlay(t, lab.Overlay("nodes", lab.Branch{Name: "one"}, lab.Branch{Name: "two"})), t}
	for host := range nearNode {
		w.Node(host)
	}
	return w
}

// pass gives the client a pass for the node on a host, and the file that it is in.
func (w *world) pass(host, name string, flags ...string) string {
	w.t.Helper()
	return w.Pass(name, host, netip.MustParseAddr(nearNode[host]), flags...)
}

// shortPass is pass with a grant that ends soon, but not before the client has taken the pass.
func (w *world) shortPass(host, name string, flags ...string) string {
	w.t.Helper()
	for until := 2 * time.Second; ; until *= 3 {
		file, err := w.Overlay.Overlay.Pass(w.t.Context(), name, host, netip.MustParseAddr(nearNode[host]), append(flags, "--until", until.String())...)
		if err == nil {
			return file
		}
		if until > time.Minute || !strings.Contains(err.Error(), "its grant ended") {
			w.t.Fatal(err)
		}
	}
}

// serve answers TCP connections at the server.
func (w *world) serve(handle func(net.Conn)) {
	w.t.Helper()
	var l net.Listener
	err := w.Host("server").Do(func() (err error) {
		l, err = net.Listen("tcp", server.String())
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
}

// echoUDP answers datagrams at the server with themselves.
func (w *world) echoUDP() {
	w.t.Helper()
	var c *net.UDPConn
	err := w.Host("server").Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(server))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			c.WriteToUDPAddrPort(buffer[:n], from)
		}
	}()
}

// askUDP sends datagrams to the relay at the client, one after the other's answer.
func (w *world) askUDP(count int) {
	w.t.Helper()
	var c net.Conn
	err := w.Host("client").Do(func() (err error) {
		c, err = net.Dial("udp", relayAt)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	buffer := make([]byte, 2048)
	for answered, tries := 0, 0; answered < count; tries++ {
		if tries > count+100 {
			w.t.Fatalf("%d of %d datagrams were answered", answered, count)
		}
		if _, err := io.WriteString(c, strings.Repeat("d", 1000)); err != nil {
			w.t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		if n, err := c.Read(buffer); err == nil && n == 1000 {
			answered++
		}
	}
}

// talk is what one end said to the other, as a capture has it.
type talk struct {
	packets, payload int
	ports            map[uint16]bool // of the first
	text             strings.Builder
}

// watch captures at places, each HOST/DEVICE, until stop, which gives who sent to whom, each "udp ADDRESS ADDRESS" without
// ports.
func (w *world) watch(places ...string) (stop func() map[string]map[string]*talk) {
	w.t.Helper()
	stopped := labtest.Watch(w.t, w.Instance, places...)
	return func() map[string]map[string]*talk {
		w.t.Helper()
		seen := map[string]map[string]*talk{}
		for place, packets := range stopped() {
			seen[place] = talks(packets)
		}
		return seen
	}
}

func talks(packets iter.Seq2[time.Time, gopacket.Packet]) map[string]*talk {
	seen := map[string]*talk{}
	for _, p := range packets {
		ip, ok := p.NetworkLayer().(*layers.IPv4)
		if !ok {
			continue
		}
		var kind string
		var port uint16
		var payload []byte
		switch t := p.TransportLayer().(type) {
		case *layers.TCP:
			kind, port, payload = "tcp", uint16(t.SrcPort), t.Payload
		case *layers.UDP:
			kind, port, payload = "udp", uint16(t.SrcPort), t.Payload
		default:
			continue
		}
		name := kind + " " + ip.SrcIP.String() + " " + ip.DstIP.String()
		if seen[name] == nil {
			seen[name] = &talk{ports: map[uint16]bool{}}
		}
		one := seen[name]
		one.packets++
		one.payload += len(payload)
		one.ports[port] = true
		one.text.Write(payload)
	}
	return seen
}

// wantTalks fails where a place saw others than these, or less than least packets of one.
func wantTalks(t *testing.T, place string, seen map[string]*talk, least int, want ...string) {
	t.Helper()
	for _, name := range want {
		if one := seen[name]; one == nil || one.packets < least {
			t.Errorf("%s saw too little of %q", place, name)
		}
	}
	for name, one := range seen {
		known := false
		for _, w := range want {
			known = known || name == w
		}
		if !known {
			t.Errorf("%s saw %d packets of %q", place, one.packets, name)
		}
	}
}
