package backendtest

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/path"
	"heddle/split"
)

// ReturnsToBoth tests that a session of ways 1 and 2, both of which it needs, stops while way 2 answers nothing, sends nothing
// by way 1 then, and runs again once way 2 answers.
func (w *World) ReturnsToBoth(t *testing.T, status func() split.Status, server netip.AddrPort) {
	t.Helper()
	c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
	send := func() { // fails while the session is stopped
		for range 20 {
			_, _ = c.WriteToUDPAddrPort([]byte("hello"), server)
			time.Sleep(time.Millisecond)
		}
	}
	await := func(state, way2 string) {
		t.Helper()
		polltest.Until(t, func() error {
			send()
			if s := status(); s.State != state || s.Paths[1].State != way2 {
				return fmt.Errorf("the status is %+v", s)
			}
			return nil
		})
	}
	await("running", string(path.Up))
	w.Mute(t, 2, true)
	await("stopped", string(path.Silent))
	tap := w.NewTap(t)
	if !tap.Until(func(all []Packet) bool { return ByWay(all)[2] >= 3 }, send) {
		t.Error("the silent path is not tested")
	}
	if by := ByWay(tap.Packets()); by[1] != 0 {
		t.Errorf("packets of the stopped session by way: %v", by)
	}
	w.Mute(t, 2, false)
	await("running", string(path.Up))
}
