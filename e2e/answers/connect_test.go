package answers

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"heddle/internal/nstest"
	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/peer"
)

var connectEvents = map[string]func(*peer.Process){
	"SIGINT":  func(p *peer.Process) { _ = p.Interrupt() },
	"SIGKILL": func(p *peer.Process) { p.Kill() },
}

// The server closes after `heddle connect`, and its kernel has the connection until the client's acknowledges that.
func TestConnect(t *testing.T) {
	for family, at := range map[string]netip.Addr{"IPv4": lab.ServerAddr, "IPv6": lab.ServerAddr6} {
		for name, before := range map[string][]string{"with rights": nil, "without rights": unprivileged} {
			for what, happens := range connectEvents {
				t.Run(family+"/"+name+"/"+what, func(t *testing.T) {
					w := newWorld(t, lab.ThreeWays())
					server := netip.AddrPortFrom(at, 2222)
					var listener net.Listener
					w.do("server", func() (err error) {
						listener, err = net.Listen("tcp", server.String())
						return err
					})
					defer listener.Close()
					stop := w.watch()
					heddle := w.start(before, "MOSH IP", "connect", "--announce", "--via", "lte=if:lte", at.String(), "2222")
					c, err := listener.Accept()
					if err != nil {
						t.Fatal(err)
					}
					listener.Close()
					happens(heddle)
					if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
						t.Fatal(err)
					}
					c.Close()
					polltest.Await(t, "the connection ends", func() bool {
						var state byte
						w.do("server", func() (err error) { state, err = nstest.TCPState(server.Port()); return err })
						return state == 0
					})
					stop()
				})
			}
		}
	}
}
