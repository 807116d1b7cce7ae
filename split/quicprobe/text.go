package quicprobe

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"heddle/internal/text"
)

// WriteText prints a report for people.
func WriteText(w io.Writer, r *Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %s\n\n", r.Server, r.Address)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(table, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	r.handshakeRows(row)
	r.changeRows(row)
	table.Flush()
	if t := r.Throughput; t != nil {
		t.write(&b)
	}
	if r.Stopped != "" {
		fmt.Fprintf(&b, "\nNot finished: %s.\n", r.Stopped)
	}
	list(&b, "Notes", r.Notes)
	list(&b, "Advice", r.Advice.Words)
	if len(r.Advice.Flags) > 0 {
		fmt.Fprintf(&b, "\n  heddle split --to %s %s --listen ... --via ... --via ...\n", r.Address, strings.Join(r.Advice.Flags, " "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func list(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, line := range lines {
		fmt.Fprintf(b, "  - %s\n", line)
	}
}

func (r *Report) handshakeRows(row func(name, format string, args ...any)) {
	certificate := ""
	if r.Insecure {
		certificate = "; nobody checked its certificate (--insecure)"
	}
	row("handshake", "%s, %s%s%s", r.Version, cmp.Or(r.ALPN, "no ALPN"), map[bool]string{true: ", after a Retry"}[r.Retry], certificate)
	row("versions", "%s", cmp.Or(strings.Join(r.Offered, ", "), r.Version+" at least (no version negotiation)"))
	row("round trip", "%v", short(r.RTT))
	p := r.Parameters
	row("migration", "%s", map[bool]string{true: "forbidden (disable_active_migration)", false: "not forbidden"}[p.DisableActiveMigration])
	preferred := "none"
	if a := p.PreferredAddress; a != nil {
		preferred = strings.Trim(a.IPv4+", "+a.IPv6, ", ")
	}
	row("preferred address", "%s", cmp.Or(preferred, "none"))
	row("connection ids", "%d given, of %d bytes; takes %d of the client", r.ConnectionIDs.Given, r.ConnectionIDs.Length, p.ActiveConnectionIDLimit)
	idle := "none"
	if p.MaxIdleTimeout > 0 {
		idle = p.MaxIdleTimeout.String()
	}
	row("idle timeout", "%s", idle)
	row("largest datagram", "%d bytes of UDP payload", p.MaxUDPPayloadSize)
	for _, one := range r.Paths {
		exit := ""
		if one.Exit != "" {
			exit = ", leaves by " + one.Exit
		}
		row("path "+one.Name, "%s%s", one.Observer, exit)
	}
}

func (r *Report) changeRows(row func(name, format string, args ...any)) {
	for _, c := range []struct {
		name string
		what *Rebinding
	}{{"new port", r.NewPort}, {"new address", r.NewAddress}} {
		switch {
		case c.what == nil:
			row(c.name, "not known")
		case c.what.Survived:
			row(c.name, "survived: answered there after %v (%v)", short(c.what.After), c.what.Tries)
		default:
			row(c.name, "not survived: %s (%v)", c.what.Why, c.what.Tries)
		}
	}
	switch n := len(r.Rotations); {
	case r.PathsAtOnce == 0:
		row("paths at once", "not known")
	case n > 0 && !r.Rotations[n-1].Held:
		row("paths at once", "%d: of %d, %s (%v)", r.PathsAtOnce, r.Rotations[n-1].Paths, r.Rotations[n-1].Why, r.Rotations[n-1].Tries)
	default:
		row("paths at once", "%d at least, slowest answer after %v", r.PathsAtOnce, short(r.slowest()))
	}
	if words := map[string]string{distrustsNothing: "nothing: it keeps its speed after a new address", distrustsAddresses: "new addresses: it is slow again after one, not after a new port",
		distrustsChanges: "changes: it is slow again after a new port, as after a new address"}[r.Distrusts]; words != "" {
		row("distrusts", "%s", words)
	}
	if e := r.Early; e != nil && e.Survived {
		row("changes from the start", "survived, every %s in %d of %d sessions", e.Every, e.Good, e.Tried)
	} else if e != nil {
		row("changes from the start", "not survived, every %s in %d of %d sessions: %s", e.Every, e.Tried-e.Good, e.Tried, e.Why)
	}
	row("traffic", "%s sent, %s received", text.Size(r.Sent), text.Size(r.Received))
}

func (r *Report) slowest() (d time.Duration) {
	for _, one := range r.Rotations {
		d = max(d, one.Slowest)
	}
	return d
}

// write prints the throughput.
func (t *Throughput) write(b *strings.Builder) {
	fmt.Fprintf(b, "\nA download of %s: %s without changes\n\n", t.Get, speed(t.Bits))
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\tnew\tevery\tover\tswitches\tspeed\tkept\theld in\t\n")
	for _, c := range t.Cases {
		fmt.Fprintf(table, "\t%s\t%s\t%d\t%d\t%s\t%.2f\t%d of %d\t\n", c.Change, c.Every, c.Paths, c.Switches, speed(c.Bits), c.Ratio, c.Good, c.Tried)
	}
	table.Flush()
	for _, c := range t.Cases {
		if !c.Survived {
			fmt.Fprintf(b, "\nNew %s every %s: %s.\n", c.Change, c.Every, c.Why)
		}
	}
}

func speed(bits float64) string {
	switch {
	case bits >= 1e9:
		return fmt.Sprintf("%.2f Gbit/s", bits/1e9)
	case bits >= 1e6:
		return fmt.Sprintf("%.1f Mbit/s", bits/1e6)
	}
	return fmt.Sprintf("%.0f kbit/s", bits/1e3)
}

// short drops insignificant digits.
func short(d time.Duration) time.Duration {
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
