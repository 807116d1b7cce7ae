package answers

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"heddle/internal/polltest"
	"heddle/lab/labtest"
)

// Without Heddle the kernel's answers do leave by the network that nobody chose, and the captures of the other tests see them.
func TestAnswersWithoutHeddle(t *testing.T) {
	w := newWorld(t, farAway())
	server := w.newChatter(udpAt)
	w.endless(streamAt.String())
	bound := func(_, _ string, raw syscall.RawConn) (err error) {
		controlErr := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "lte") })
		return errors.Join(controlErr, err)
	}
	var datagrams, stream net.Conn
	w.do("client", func() (err error) {
		d := net.Dialer{Control: bound}
		if datagrams, err = d.Dial("udp", udpAt.String()); err != nil {
			return err
		}
		stream, err = d.Dial("tcp", streamAt.String())
		return err
	})
	defer datagrams.Close()
	defer stream.Close()
	polltest.Await(t, "the server hears the program", func() bool {
		_, err := datagrams.Write(make([]byte, 100))
		return err == nil && len(server.all()) > 0
	})
	if _, err := io.CopyN(io.Discard, stream, 1<<18); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, stream) }() // else the window closes, and nothing is under way in the end
	stopped := labtest.Watch(t, w.Instance, "client/home")
	datagrams.Close()
	stream.Close()
	w.more("lte")
	seen := map[string]bool{}
	for _, p := range stopped()["client/home"] {
		if p.Layer(layers.LayerTypeICMPv4) != nil {
			seen["ICMP"] = true
		}
		if tcp, ok := p.TransportLayer().(*layers.TCP); ok && tcp.RST {
			seen["RST"] = true
		}
	}
	if !seen["ICMP"] || !seen["RST"] {
		t.Errorf("by home left only %v", seen)
	}
}
