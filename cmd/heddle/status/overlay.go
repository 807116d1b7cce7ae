package status

import (
	"fmt"
	"strings"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/internal/text"
	"heddle/overlay/client"
)

// nodeText prints the status of `heddle node run`.
func nodeText(b *strings.Builder, name string, s *client.Status, now time.Time) {
	fmt.Fprintf(b, "%s: running\n", name)
	fmt.Fprintf(b, "  overlay node %s on %s for %s, offers %s\n", s.Name, s.Listen, cli.Span(now.Sub(s.Since)), strings.Join(s.Modes, ", "))
	fmt.Fprintf(b, "  %s open, %s so far; up %s, down %s; %s in use\n", text.About(s.FlowsOpen, "flow"), text.Quantity(s.Flows),
		text.Size(s.Up), text.Size(s.Down), text.About(len(s.Grants), "grant"))
	if s.Strangers > 0 {
		fmt.Fprintf(b, "  %s no stream\n", text.About(s.Strangers, "connection carries"))
	}
	for _, reason := range client.Reasons() {
		if n := s.Refused[reason]; n > 0 {
			fmt.Fprintf(b, "  refused %s: %s\n", text.About(n, "time"), reason)
		}
	}
}

// boardText prints the status of `heddle board run`.
func boardText(b *strings.Builder, name string, s *control.Board, now time.Time) {
	fmt.Fprintf(b, "%s: running\n", name)
	whom := "everybody"
	if s.Members >= 0 {
		whom = text.About(s.Members, "member")
	}
	fmt.Fprintf(b, "  board on %s for %s, for %s\n", s.Listen, whom, cli.Span(now.Sub(s.Since)))
	fmt.Fprintf(b, "  %s of %s with %s, of %s that it takes; %s so far, %s waiting\n", text.About(s.Tuples, "tuple"),
		text.About(s.Authors, "author"), text.Size(uint64(s.Bytes)), text.Quantity(uint64(s.Limits.Tuples)), text.About(s.Version, "operation"),
		text.About(s.Waiting, "request"))
}
