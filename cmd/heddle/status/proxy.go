package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/proxy/connectudp"
)

// proxyText prints what a proxy of `heddle masque serve` does.
func proxyText(b *strings.Builder, name string, s *connectudp.Status, now time.Time) {
	fmt.Fprintf(b, "%s: running\n", name)
	fmt.Fprintf(b, "  masque proxy on %s for %s\n", s.Listen, cli.Span(now.Sub(s.Since)))
	fmt.Fprintf(b, "  %s, %s; %s open, %s so far\n", cli.Plural(uint64(s.Connections), "connection", "connections"),
		cli.Plural(uint64(s.Users), "user", "users"), cli.Plural(uint64(s.FlowsOpen), "flow", "flows"), cli.Quantity(s.Flows))
	fmt.Fprintf(b, "  up %s, %s; down %s, %s; dropped %s up, %s down\n", cli.Plural(s.Up.Packets, "packet", "packets"), cli.Size(s.Up.Bytes),
		cli.Plural(s.Down.Packets, "packet", "packets"), cli.Size(s.Down.Bytes), cli.Quantity(s.Up.Dropped), cli.Quantity(s.Down.Dropped))
	fmt.Fprintf(b, "  refused: %s for wrong credentials, %s for the target, %s over a limit\n",
		cli.Quantity(s.RefusedAuth), cli.Quantity(s.RefusedTarget), cli.Quantity(s.RefusedLimit))
	for _, user := range slices.Sorted(maps.Keys(s.Open)) {
		fmt.Fprintf(b, "  %s: %s open\n", user, cli.Plural(uint64(s.Open[user]), "flow", "flows"))
	}
}
