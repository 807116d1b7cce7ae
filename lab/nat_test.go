package lab

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestOneExit sends a datagram from each address of the client, all from one port, and looks at what the server sees.
func TestOneExit(t *testing.T) {
	for _, c := range []struct {
		world World
		seen  int
	}{{ThreeWays(), 3}, {ThreeWaysOneExit(), 1}} {
		t.Run(c.world.Name, func(t *testing.T) {
			in := needWorld(t, c.world)
			at := netip.AddrPortFrom(ServerAddr, 7)
			var server *net.UDPConn
			if err := in.Host("server").Do(func() (err error) {
				server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			addrs, ports := map[netip.Addr]bool{}, map[netip.AddrPort]bool{}
			for i := range Ways {
				from := net.UDPAddr{IP: net.IPv4(10, 101, byte(i+1), 2), Port: 4000}
				err := in.Host("client").Do(func() error {
					conn, err := net.DialUDP("udp", &from, net.UDPAddrFromAddrPort(at))
					if err != nil {
						return err
					}
					defer conn.Close()
					_, err = conn.Write([]byte("hello"))
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				server.SetReadDeadline(time.Now().Add(time.Minute))
				_, seen, err := server.ReadFromUDPAddrPort(make([]byte, 16))
				if err != nil {
					t.Fatalf("%s: %v", Ways[i], err)
				}
				addrs[seen.Addr()], ports[seen] = true, true
			}
			if len(addrs) != c.seen || len(ports) != len(Ways) {
				t.Errorf("the server sees %v", ports)
			}
		})
	}
}
