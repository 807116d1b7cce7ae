package leadtest

import (
	"net"

	"heddle/internal/polltest"
)

// A client reaches the tenant without the gateway too, also from a port whose connection was led there before.
func portIsUsedWithoutTheGateway(w *World) {
	near, far := w.Moved()
	w.Talk(near, far)
	w.breakOff(near, far)
	w.await("back", true)

	near, far = w.direct()
	w.await("back", false)
	w.Talk(near, far)
}

// direct connects the client, from its one port, to the tenant.
func (w *World) direct() (near, far *net.TCPConn) {
	w.t.Helper()
	var l *net.TCPListener
	w.Tenant.Do(w.t, func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(w.Inside))
		return err
	})
	defer l.Close()
	w.Client.Do(w.t, func() error {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(w.At), Timeout: polltest.Patience}
		c, err := d.Dial("tcp", w.Inside.String())
		if err == nil {
			near = c.(*net.TCPConn)
		}
		return err
	})
	far, err := l.AcceptTCP()
	if err != nil {
		w.t.Fatal(err)
	}
	w.keep(near, far)
	return near, far
}
