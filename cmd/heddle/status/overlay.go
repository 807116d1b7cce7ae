package status

import (
	"fmt"
	"strings"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/node"
	"heddle/overlay/client"
)

// nodeText prints what an overlay node of `heddle node run` does.
func nodeText(b *strings.Builder, name string, s *client.Status, now time.Time) {
	fmt.Fprintf(b, "%s: running\n", name)
	fmt.Fprintf(b, "  overlay node %s on %s for %s, offers %s\n", s.Name, s.Listen, cli.Span(now.Sub(s.Since)), node.ModesText(s.Modes))
	fmt.Fprintf(b, "  %s open, %s so far; up %s, down %s; %s in use\n", cli.Plural(uint64(s.FlowsOpen), "flow", "flows"), cli.Quantity(s.Flows),
		cli.Size(s.Up), cli.Size(s.Down), cli.Plural(uint64(len(s.Grants)), "grant", "grants"))
	if s.Strangers > 0 {
		fmt.Fprintf(b, "  %s no stream\n", cli.Plural(uint64(s.Strangers), "connection carries", "connections carry"))
	}
	for _, reason := range client.Reasons() {
		if n := s.Refused[reason]; n > 0 {
			fmt.Fprintf(b, "  refused %s: %s\n", cli.Plural(n, "time", "times"), reason)
		}
	}
}

// boardText prints what a board of `heddle board run` does.
func boardText(b *strings.Builder, name string, s *control.Board, now time.Time) {
	fmt.Fprintf(b, "%s: running\n", name)
	whom := "everybody"
	if s.Members >= 0 {
		whom = cli.Plural(uint64(s.Members), "member", "members")
	}
	fmt.Fprintf(b, "  board on %s for %s, for %s\n", s.Listen, whom, cli.Span(now.Sub(s.Since)))
	fmt.Fprintf(b, "  %s of %s with %s, of %s that it takes; %s so far, %s waiting\n", cli.Plural(uint64(s.Tuples), "tuple", "tuples"),
		cli.Plural(uint64(s.Authors), "author", "authors"), cli.Size(uint64(s.Bytes)), cli.Quantity(uint64(s.Limits.Tuples)), cli.Plural(s.Version, "operation", "operations"),
		cli.Plural(uint64(s.Waiting), "request", "requests"))
}
