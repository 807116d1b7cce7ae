package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"heddle/internal/text"
	"heddle/pseudonym/cloud"
	"heddle/pseudonym/store"
	"heddle/pseudonym/tenant"
)

// cloudText prints the status of `heddle pseudonym serve`.
func cloudText(b *strings.Builder, name string, s *cloud.Status) {
	fmt.Fprintf(b, "%s: running\n  pseudonyms of %s\n", name, s.Zone)
	if g := s.Gateway; g != nil {
		fmt.Fprintf(b, "  gateway: %s open, %s relayed with %s up and %s down, %s passed, %s moved; encrypted names: %s; refused: %s; failed: %s\n", text.About(g.Live, "connection"), text.Quantity(g.Relayed),
			text.Size(g.BytesUp), text.Size(g.BytesDown), text.Quantity(g.Passed), text.Quantity(g.Moved), text.Quantity(g.Encrypted), text.Quantity(g.Refused), text.Quantity(g.Failed))
		answerAge(b, g.AnswerAge)
	}
	if n := s.Switch; n != nil {
		fmt.Fprintf(b, "  switch: %s led, %s to the gateway; dropped: %s of unknown addresses, %s refused, %s without a route\n", text.Quantity(n.Led), text.Quantity(n.Own),
			text.Quantity(n.Unknown), text.Quantity(n.Refused), text.Quantity(n.Unreachable))
	}
	if n := s.Store; n != nil {
		fmt.Fprintf(b, "  store: %s registered, %s renewed, %s revoked; refused: %s; failed: %s\n", text.Quantity(n[store.Registered]), text.Quantity(n[store.Renewed]),
			text.Quantity(n[store.Revoked]), text.Quantity(store.Refused(n)), text.Quantity(n[store.Failed]))
	}
	if ahead := time.Duration(s.ClockAhead) * time.Second; ahead > cloud.ClockAhead {
		fmt.Fprintf(b, "  the clock is %s ahead of the time that the store has run; pseudonyms that ended are deleted later\n", text.About(int(ahead/(24*time.Hour)), "day"))
	}
	if l := s.Linker; l != nil {
		fmt.Fprintf(b, "  linker: %s led to pseudonyms, %s to plain names; asked: %s; failed: %s\n", text.Quantity(l.Led), text.Quantity(l.Plain), text.Quantity(l.Asked), text.Quantity(l.Failed))
	}
	if d := s.DNS; d != nil {
		fmt.Fprintf(b, "  nameserver: %s answered, %s refused\n", text.Quantity(d.Answers), text.Quantity(d.Refused))
		answerAge(b, d.AnswerAge)
	}
}

// answerAge prints how old what stands in for the database is.
func answerAge(b *strings.Builder, seconds int64) {
	if seconds > 0 {
		fmt.Fprintf(b, "    the database does not answer; its answers of up to %s ago stand in\n", text.About(int(seconds), "second"))
	}
}

// tenantText prints the status of `heddle pseudonym tenant run`.
func tenantText(b *strings.Builder, name string, s *tenant.Status) {
	fmt.Fprintf(b, "%s: running\n  sidecar of %s, %s open\n", name, s.To, text.About(s.Live, "connection"))
	if d := s.Defence; d != nil {
		fmt.Fprintf(b, "  defence: %s in %s; %s as %s\n", text.About(d.Objects, "object"), text.About(d.Pieces, "piece"), text.Size(d.Content), text.Size(d.Sent))
		var all []string
		for _, name := range slices.Sorted(maps.Keys(d.Would)) {
			all = append(all, name+" "+text.Size(d.Would[name]))
		}
		if len(all) > 0 {
			fmt.Fprintf(b, "  each strategy would have sent: %s\n", strings.Join(all, ", "))
		}
		fmt.Fprintf(b, "  claim: %s\n", s.Claim)
	}
}
