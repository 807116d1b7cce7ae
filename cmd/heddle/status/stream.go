package status

import (
	"fmt"
	"strings"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/stream"
	"heddle/internal/text"
	"heddle/stripe"
)

// mostSessions bounds the sessions of one heddle in the text; the JSON has all.
const mostSessions = 8

// streamText prints the status of a heddle that carries streams.
func streamText(b *strings.Builder, name string, s *control.Stream, now time.Time) {
	fmt.Fprintf(b, "%s: running\n", name)
	what := map[string]string{"dial": "dials %[1]s at %[3]s, for programs on %[2]s", "serve": "serves %[3]s as %[1]s on %[2]s",
		"send": "sends to %[1]s at %[3]s%.0[2]s", "recv": "receives %[1]s into %[3]s, on %[2]s"}[s.Role]
	if what == "" {
		what = "%[1]s %[2]s %[3]s"
	}
	fmt.Fprintf(b, "  "+what+", for %[4]s\n", s.Service, s.Listen, s.To, cli.Span(now.Sub(s.Since)))
	text := text.About(len(s.Sessions), "session")
	if s.Warm > 0 {
		text += fmt.Sprintf(", of which %d dialled ahead", s.Warm)
	}
	fmt.Fprintf(b, "  %s\n", text)
	switch {
	case s.Why != "" && len(s.Sessions) == 0:
		fmt.Fprintf(b, "  none can be had: %s\n", s.Why)
	case s.Why != "":
		fmt.Fprintf(b, "  none can be dialled ahead: %s\n", s.Why)
	}
	for i, one := range s.Sessions {
		if i == mostSessions {
			fmt.Fprintf(b, "  and %d more: heddle status %s --json\n", len(s.Sessions)-i, name)
			return
		}
		stripeText(b, one, now)
	}
}

// stripeText prints one session and its paths.
func stripeText(b *strings.Builder, s stripe.Status, now time.Time) {
	fmt.Fprintf(b, "\n  %s with %s: %s", s.Session, s.Peer.Short(), s.State)
	if s.Why != "" {
		fmt.Fprintf(b, ": %s", s.Why)
	}
	needs := fmt.Sprintf("needs %d of %d paths", s.MinPaths, len(s.Paths))
	if s.Degrade {
		needs = "goes on with fewer"
	}
	fmt.Fprintf(b, "\n  %s, %s; for %s; up %s, down %s\n", stream.CutText(s), needs, cli.Span(now.Sub(s.Since)), text.Size(s.Sent), text.Size(s.Received))
	rows := [][]string{{"PATH", "STATE", "RTT", "UP", "SHARE", "DOWN", "SHARE", "AGAIN", "HEARD"}}
	for _, p := range s.Paths {
		rows = append(rows, []string{p.Name, p.State, cli.RTT(p.RTT), text.Size(p.Up.Bytes), text.Percent(p.Up.Share), text.Size(p.Down.Bytes), text.Percent(p.Down.Share),
			text.Quantity(p.Up.Again), cli.Heard(p.LastHeard, now)})
	}
	newTable(rows, 2, 2, 3, 4, 5, 6, 7, 8).write(b, 0, len(rows[0]))
	for _, p := range s.Paths {
		if p.Why != "" {
			fmt.Fprintf(b, "  %s: %s\n", p.Name, p.Why)
		}
	}
	for _, line := range stream.SharedObservers(s) {
		fmt.Fprintf(b, "  %s\n", line)
	}
}
