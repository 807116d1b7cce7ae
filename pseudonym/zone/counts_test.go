package zone

import (
	"testing"

	"github.com/miekg/dns"
)

func TestCounts(t *testing.T) {
	var c, none *Counter
	c = &Counter{}
	for rcode, n := range map[int]int{dns.RcodeSuccess: 3, dns.RcodeNameError: 2, dns.RcodeRefused: 1, dns.RcodeNotImplemented: 1} {
		for range n {
			m := &dns.Msg{MsgHdr: dns.MsgHdr{Rcode: rcode}}
			c.note(m)
			none.note(m)
		}
	}
	if got := c.Counts(); got != (Counts{Answers: 5, Unknown: 2, Refused: 2}) {
		t.Errorf("%+v", got)
	}
}
