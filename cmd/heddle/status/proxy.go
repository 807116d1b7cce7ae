package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/internal/text"
	"heddle/proxy/connectudp"
)

// proxyText prints the status of `heddle masque serve`.
func proxyText(b *strings.Builder, name string, s *connectudp.Status, now time.Time) {
	fmt.Fprintf(b, "%s: running\n", name)
	fmt.Fprintf(b, "  masque proxy on %s for %s\n", s.Listen, cli.Span(now.Sub(s.Since)))
	fmt.Fprintf(b, "  %s, %s; %s open, %s so far\n", text.About(s.Connections, "connection"),
		text.About(s.Users, "user"), text.About(s.FlowsOpen, "flow"), text.Quantity(s.Flows))
	fmt.Fprintf(b, "  up %s, %s; down %s, %s; dropped %s up, %s down\n", text.About(s.Up.Packets, "packet"), text.Size(s.Up.Bytes),
		text.About(s.Down.Packets, "packet"), text.Size(s.Down.Bytes), text.Quantity(s.Up.Dropped), text.Quantity(s.Down.Dropped))
	fmt.Fprintf(b, "  refused: %s for wrong credentials, %s for the target, %s over a limit\n",
		text.Quantity(s.RefusedAuth), text.Quantity(s.RefusedTarget), text.Quantity(s.RefusedLimit))
	for _, user := range slices.Sorted(maps.Keys(s.Open)) {
		fmt.Fprintf(b, "  %s: %s open\n", user, text.About(uint64(s.Open[user]), "flow"))
	}
}
