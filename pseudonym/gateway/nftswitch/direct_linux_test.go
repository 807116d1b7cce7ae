package nftswitch

import (
	"net"
	"testing"

	"heddle/internal/polltest"
)

// A client reaches the tenant without the gateway too, also from a port whose connection was led there before.
func TestPortIsUsedWithoutTheGateway(t *testing.T) { both(t, portIsUsedWithoutTheGateway) }

func portIsUsedWithoutTheGateway(w *world) {
	near, far := w.moved()
	w.talk(near, far)
	w.breakOff(near, far)
	w.await("back", true)

	near, far = w.direct()
	w.await("back", false)
	w.talk(near, far)
}

// direct connects the client, from its one port, to the tenant.
func (w *world) direct() (near, far *net.TCPConn) {
	w.t.Helper()
	var l *net.TCPListener
	w.tenant.Do(w.t, func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(w.inside))
		return err
	})
	defer l.Close()
	w.client.Do(w.t, func() error {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(w.at), Timeout: polltest.Patience}
		c, err := d.Dial("tcp", w.inside.String())
		if err == nil {
			near = c.(*net.TCPConn)
		}
		return err
	})
	far, err := l.AcceptTCP()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range []*net.TCPConn{near, far} {
		w.t.Cleanup(func() { c.Close() })
		w.patient(c)
	}
	return near, far
}
