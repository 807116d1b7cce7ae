package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"heddle/internal/text"
	"heddle/pseudonym/cloud"
	"heddle/pseudonym/tenant"
)

// cloudText prints the status of `heddle pseudonym serve`.
func cloudText(b *strings.Builder, name string, s *cloud.Status) {
	g := s.Gateway
	fmt.Fprintf(b, "%s: running\n  pseudonyms of %s\n", name, s.Zone)
	fmt.Fprintf(b, "  gateway: %s open, %s relayed with %s up and %s down; refused: %s; failed: %s\n", text.About(g.Live, "connection"), text.Quantity(g.Relayed),
		text.Size(g.BytesUp), text.Size(g.BytesDown), text.Quantity(g.Refused), text.Quantity(g.Failed))
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
	}
}
