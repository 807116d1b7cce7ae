package schedules

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"heddle/lab"
	"heddle/lab/labtest"
)

// own is the client's address in each access network.
var own = map[string]netip.Addr{"home": netip.MustParseAddr("10.101.1.2"), "lte": netip.MustParseAddr("10.101.2.2"),
	"office": netip.MustParseAddr("10.101.3.2")}

// packet is a UDP datagram that a network saw.
type packet struct {
	from, to netip.AddrPort
	payload  []byte
}

// up reports whether it goes to the server, and port is the server's.
func (p packet) up(port uint16) bool { return p.to == netip.AddrPortFrom(serverAddr, port) }

func (p packet) down(port uint16) bool { return p.from == netip.AddrPortFrom(serverAddr, port) }

// long reports whether it begins with a long header of QUIC.
func (p packet) long() bool { return len(p.payload) > 0 && p.payload[0]&0x80 != 0 }

// watch captures at the client's side of each access network's router, and at the server where it is asked for; stop
// gives what each saw.
func (w *world) watch(server bool) (stop func() map[string][]packet) {
	w.t.Helper()
	dir, places := w.t.TempDir(), map[string]string{}
	for _, way := range lab.Ways {
		places[way] = way + "-gw/client"
	}
	if server {
		places["server"] = "server/core"
	}
	end := labtest.Capture(w.t, w.Instance, dir, places)
	return func() map[string][]packet {
		w.t.Helper()
		end()
		seen := map[string][]packet{}
		for name := range places {
			seen[name] = read(w.t, labtest.File(dir, name))
		}
		return seen
	}
}

// read gives the UDP datagrams over IPv4 of a capture.
func read(t *testing.T, file string) (all []packet) {
	t.Helper()
	for _, decoded := range labtest.Packets(t, file) {
		ip, isIP := decoded.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		udp, isUDP := decoded.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if isIP && isUDP {
			from, _ := netip.AddrFromSlice(ip.SrcIP)
			to, _ := netip.AddrFromSlice(ip.DstIP)
			all = append(all, packet{netip.AddrPortFrom(from.Unmap(), uint16(udp.SrcPort)), netip.AddrPortFrom(to.Unmap(), uint16(udp.DstPort)), udp.Payload})
		}
	}
	return all
}

// carried is where a datagram of a session was seen.
type carried struct {
	way  string
	port uint16 // the client's
}

// follow finds each datagram of a session up in the one network that carried it, and its echo in the same one. It fails
// where one is missing, was seen twice, or has another network's address.
func follow(seen map[string][]packet, s traffic, port uint16) ([]carried, error) {
	up, down := make([]carried, s.n), make([]carried, s.n)
	for _, way := range lab.Ways {
		for _, p := range seen[way] {
			session, number, ok := parse(p.payload)
			if !ok || session != s.session || !p.up(port) && !p.down(port) {
				continue
			}
			of, client := down, p.to
			if p.up(port) {
				of, client = up, p.from
			}
			if client.Addr() != own[way] {
				return nil, fmt.Errorf("%s carries number %d of session %d with the address %v", way, number, session, client)
			}
			if of[number].way != "" {
				return nil, fmt.Errorf("number %d of session %d was seen twice, in %s and %s", number, session, of[number].way, way)
			}
			of[number] = carried{way, client.Port()}
		}
	}
	for i := range up {
		if up[i].way == "" || up[i] != down[i] {
			return nil, fmt.Errorf("number %d of session %d was seen at %+v up, %+v down", i, s.session, up[i], down[i])
		}
	}
	return up, nil
}

// visit is a run of datagrams on one way, from one port.
type visit struct {
	carried
	n int
}

func visits(all []carried) (list []visit) {
	for _, c := range all {
		if len(list) == 0 || list[len(list)-1].carried != c {
			list = append(list, visit{carried: c})
		}
		list[len(list)-1].n++
	}
	return list
}
