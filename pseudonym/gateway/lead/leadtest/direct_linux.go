package leadtest

import "net"

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

// listens has another server listen at the tenant's address, until the test ends.
func (w *World) listens() (l *net.TCPListener) {
	w.t.Helper()
	w.Tenant.Do(w.t, func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(w.Inside))
		return err
	})
	w.t.Cleanup(func() { l.Close() })
	return l
}

// direct connects the client, from its one port, to the tenant.
func (w *World) direct() (near, far *net.TCPConn) {
	w.t.Helper()
	l := w.listens()
	defer l.Close()
	w.Client.Do(w.t, func() (err error) {
		near, err = w.connect(w.Inside)
		return err
	})
	far, err := l.AcceptTCP()
	if err != nil {
		w.t.Fatal(err)
	}
	w.keep(near, far)
	return near, far
}
