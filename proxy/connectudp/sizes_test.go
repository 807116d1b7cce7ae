package connectudp

import (
	"net/netip"
	"testing"
	"time"
)

func TestUnfinished(t *testing.T) {
	s := newUnfinished()
	now := time.Now()
	s.now = func() time.Time { return now }
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	s.begun(a)
	s.begun(b)
	if s.overdue(a) {
		t.Error("overdue at once")
	}
	s.finished(b)
	now = now.Add(narrowAfter)
	s.begun(a)
	if !s.overdue(a) || s.overdue(b) {
		t.Error("who failed is not told from who did not")
	}
	now = now.Add(narrowFor)
	if s.overdue(a) {
		t.Error("overdue for ever")
	}
	for i := range 3 * maxPending {
		s.begun(netip.AddrFrom4([4]byte{9, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	if len(s.pending) > maxPending {
		t.Errorf("%d are kept", len(s.pending))
	}
}
