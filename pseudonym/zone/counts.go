package zone

import (
	"sync/atomic"

	"github.com/miekg/dns"
)

// Counter counts what nameservers answer. It is ready as it is, and one may serve several nameservers.
type Counter struct{ answers, unknown, refused atomic.Uint64 }

// Counts tell what nameservers did.
type Counts struct {
	Answers uint64 `json:"answers"` // about names of the zone
	Unknown uint64 `json:"unknown"` // of them, that there is no such name
	Refused uint64 `json:"refused"` // about other zones, or in a way that it does not serve
	// AnswerAge is how old the oldest answer of the database is, in seconds, that stands in for it in pseudo-addresses; 0 while it answers.
	AnswerAge int64 `json:"answer_age_s"`
}

// note counts an answer. A nil counter counts none.
func (c *Counter) note(m *dns.Msg) {
	switch {
	case c == nil:
	case m.Rcode == dns.RcodeSuccess:
		c.answers.Add(1)
	case m.Rcode == dns.RcodeNameError:
		c.answers.Add(1)
		c.unknown.Add(1)
	default:
		c.refused.Add(1)
	}
}

// Counts returns the state.
func (c *Counter) Counts() Counts {
	return Counts{Answers: c.answers.Load(), Unknown: c.unknown.Load(), Refused: c.refused.Load()}
}
