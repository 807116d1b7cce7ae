package status

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/disguise/bridge"
	"heddle/disguise/client"
	"heddle/disguise/handshake"
	"heddle/internal/text"
)

// Disguises shows the bridges that run and their clients, or the one called NAME.
func Disguises(ctx context.Context, out io.Writer, names []string, asJSON bool) error {
	found, err := lookAt(ctx, names)
	if err != nil {
		return err
	}
	found.Left = nil
	found.Running = slices.DeleteFunc(found.Running, func(r running) bool { return r.Bridge == nil && r.Disguise == nil && r.Error == "" })
	if asJSON {
		return cli.WriteJSON(out, found)
	}
	return printStatus(out, found, time.Now(), cli.TerminalWidth(out))
}

// bridgeText prints the status of `heddle disguise serve`.
func bridgeText(b *strings.Builder, name string, s *bridge.Status, now time.Time) {
	fmt.Fprintf(b, "%s: running\n", name)
	fmt.Fprintf(b, "  bridge on %s for %s\n", strings.Join(s.Listen, ", "), cli.Span(now.Sub(s.Since)))
	fmt.Fprintf(b, "  %s open, %s and %s so far; %s without one\n", text.About(len(s.Links), "link"), text.Quantity(s.LinksEver),
		text.About(s.Streams, "stream"), text.About(s.Strangers, "connection"))
	for _, l := range s.Links {
		fmt.Fprintf(b, "  link for %s: %s over %s; %s up, %s down%s\n    on the wire %s up, %s down\n", cli.Span(now.Sub(l.Since)), modeText(l.Mode),
			text.About(l.Connections, "connection"), text.Size(l.Up), text.Size(l.Down), secrecy(l.PostQuantum), text.Size(l.WireUp), text.Size(l.WireDown))
	}
	for _, reason := range slices.Sorted(maps.Keys(s.Refused)) {
		fmt.Fprintf(b, "  not answered %s: %s\n", text.About(s.Refused[reason], "time"), reason)
	}
	if s.Full+s.Forbidden+s.Unreachable > 0 {
		fmt.Fprintf(b, "  refused: %s over a limit, %s for the target, %s since the target did not answer\n", text.Quantity(s.Full), text.Quantity(s.Forbidden),
			text.Quantity(s.Unreachable))
	}
	if s.Dropped > 0 {
		fmt.Fprintf(b, "  dropped %s\n", text.About(s.Dropped, "datagram"))
	}
}

func modeText(mode byte) string {
	if mode == handshake.OneTarget {
		return "one stream"
	}
	return "many streams"
}

func secrecy(postQuantum bool) string {
	if postQuantum {
		return "; post-quantum keys"
	}
	return ""
}

// disguiseText prints the status of `heddle disguise dial`.
func disguiseText(b *strings.Builder, name string, s *control.Disguise, now time.Time) {
	fmt.Fprintf(b, "%s: running", name)
	if s.Why != "" {
		fmt.Fprintf(b, ": no link: %s", s.Why)
	}
	to := "SOCKS5 and HTTP CONNECT"
	if s.To != "" {
		to = "to " + s.To
	}
	fmt.Fprintf(b, "\n  %s, %s, by the bridge %s for %s\n", s.Listen, to, s.Bridge, cli.Span(now.Sub(s.Since)))
	for _, l := range s.Links {
		linkText(b, l, now)
	}
}

func linkText(b *strings.Builder, l client.Status, now time.Time) {
	fmt.Fprintf(b, "  link for %s: %s; %s up, %s down%s\n    on the wire %s up, %s down; %s sent again\n", cli.Span(now.Sub(l.Since)), text.About(l.Streams, "stream"),
		text.Size(l.Up), text.Size(l.Down), secrecy(l.PostQuantum), text.Size(l.WireUp), text.Size(l.WireDown), text.Size(l.Again))
	if l.Why != "" {
		fmt.Fprintf(b, "  nothing is sent: %s\n", l.Why)
	}
	rows := [][]string{{"PATH", "STATE", "OPEN", "OPENED", "UP", "DOWN"}}
	for _, p := range l.Paths {
		rows = append(rows, []string{p.Name, string(p.State), fmt.Sprint(p.Connections), text.Quantity(p.Opened), text.Size(p.WireUp), text.Size(p.WireDown)})
		for _, c := range p.Covers {
			rows = append(rows, []string{"  " + c.Name, string(c.State), fmt.Sprint(c.Connections), text.Quantity(c.Opened), text.Size(c.WireUp), text.Size(c.WireDown)})
		}
	}
	newTable(rows, 2).write(b, 0, 6)
	for _, p := range l.Paths {
		if p.Why != "" {
			fmt.Fprintf(b, "  %s: %s\n", p.Name, p.Why)
		}
	}
}
