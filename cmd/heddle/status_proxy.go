package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"heddle/proxy/connectudp"
)

// proxyText prints what a proxy of `heddle masque serve` does.
func proxyText(b *strings.Builder, name string, s *connectudp.Status, now time.Time) {
	fmt.Fprintf(b, "%s: running\n", name)
	fmt.Fprintf(b, "  masque proxy on %s for %s\n", s.Listen, span(now.Sub(s.Since)))
	fmt.Fprintf(b, "  %s, %s; %s open, %s so far\n", plural(uint64(s.Connections), "connection", "connections"),
		plural(uint64(s.Users), "user", "users"), plural(uint64(s.FlowsOpen), "flow", "flows"), quantity(s.Flows))
	fmt.Fprintf(b, "  up %s, %s; down %s, %s; dropped %s up, %s down\n", plural(s.Up.Packets, "packet", "packets"), size(s.Up.Bytes),
		plural(s.Down.Packets, "packet", "packets"), size(s.Down.Bytes), quantity(s.Up.Dropped), quantity(s.Down.Dropped))
	fmt.Fprintf(b, "  refused: %s for wrong credentials, %s for the target, %s over a limit\n",
		quantity(s.RefusedAuth), quantity(s.RefusedTarget), quantity(s.RefusedLimit))
	for _, user := range slices.Sorted(maps.Keys(s.Open)) {
		fmt.Fprintf(b, "  %s: %s open\n", user, plural(uint64(s.Open[user]), "flow", "flows"))
	}
}
