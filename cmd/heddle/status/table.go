package status

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"heddle/cmd/heddle/internal/cli"
	"heddle/internal/text"
	"heddle/split"
)

// printStatus prints what runs in lines of at most 110 columns, if names and addresses allow it. On a narrower terminal
// it splits a table in two.
func printStatus(w io.Writer, found answer, now time.Time, width int) error {
	var b strings.Builder
	if len(found.Running) == 0 {
		b.WriteString("nothing is running\n")
	}
	for i, r := range found.Running {
		if i > 0 {
			b.WriteString("\n")
		}
		switch {
		case r.Error != "":
			fmt.Fprintf(&b, "%s\n", r.Error)
		case r.Proxy != nil:
			proxyText(&b, r.Name, r.Proxy, now)
		case r.Stream != nil:
			streamText(&b, r.Name, r.Stream, now)
		case r.Node != nil:
			nodeText(&b, r.Name, r.Node, now)
		case r.Board != nil:
			boardText(&b, r.Name, r.Board, now)
		case r.Bridge != nil:
			bridgeText(&b, r.Name, r.Bridge, now)
		case r.Disguise != nil:
			disguiseText(&b, r.Name, r.Disguise, now)
		case r.Pseudonym != nil:
			cloudText(&b, r.Name, r.Pseudonym)
		case r.Tenant != nil:
			tenantText(&b, r.Name, r.Tenant)
		case len(r.Sessions) == 0:
			fmt.Fprintf(&b, "%s: running, no session yet\n", r.Name)
		}
		for j, s := range r.Sessions {
			if j > 0 {
				b.WriteString("\n")
			}
			sessionText(&b, r.Name, s, now, width)
		}
	}
	for _, l := range found.Left {
		b.WriteString("\n")
		leftText(&b, l)
	}
	for _, l := range found.Passing {
		b.WriteString("\n")
		passingText(&b, l, now)
	}
	_, err := io.WriteString(w, cli.Folded(text.Printable(b.String(), '\n'), width))
	return err
}

func sessionText(b *strings.Builder, name string, s split.Status, now time.Time, width int) {
	if s.Session != "" && s.Session != name {
		name += " " + s.Session
	}
	fmt.Fprintf(b, "%s: %s", name, s.State)
	if s.Why != "" {
		fmt.Fprintf(b, ": %s", s.Why)
	}
	b.WriteString("\n")
	server := s.To
	if s.Server != "" && s.Server != s.To {
		server += " (" + s.Server + ")"
	}
	scheduled := 0
	for _, p := range s.Paths {
		if !p.Beside {
			scheduled++
		}
	}
	needs := fmt.Sprintf("needs %d of %d paths", s.MinPaths, scheduled)
	if s.Degrade {
		needs = "goes on with fewer"
	}
	fmt.Fprintf(b, "  %s to %s for %s\n", s.Backend, server, cli.Span(now.Sub(s.Since)))
	mtu := ""
	if s.MTU > 0 {
		mtu = fmt.Sprintf("; MTU %d", s.MTU)
	}
	fmt.Fprintf(b, "  %s, every %s, %s; %s%s\n", s.Schedule, s.Every, needs, text.About(s.Switches, "switch"), mtu)
	pathTable(b, s.Paths, now, width)
	for _, p := range s.Paths {
		if len(p.Rules) > 0 {
			fmt.Fprintf(b, "  %s: carries %s, whatever the schedule says\n", p.Name, strings.Join(p.Rules, ", "))
		}
		if p.Why != "" {
			fmt.Fprintf(b, "  %s: %s\n", p.Name, p.Why)
		}
		if p.Up.Dropped+p.Down.Dropped > 0 {
			fmt.Fprintf(b, "  %s: dropped %d up, %d down\n", p.Name, p.Up.Dropped, p.Down.Dropped)
		}
	}
	if s.Refused > 0 {
		fmt.Fprintf(b, "  not sent for want of healthy paths: %s\n", text.About(s.Refused, "packet"))
	}
	if s.Withheld > 0 {
		fmt.Fprintf(b, "  not sent since the path that a rule names was down: %s\n", text.About(s.Withheld, "packet"))
	}
	if s.TooLarge > 0 {
		fmt.Fprintf(b, "  not passed on as too large for the narrowest path: %s\n", text.About(s.TooLarge, "packet"))
	}
	for _, warning := range s.Warnings {
		fmt.Fprintf(b, "  warning: %s\n", warning)
	}
}

// An IPv4 address with its port fits; a longer one gets its own line, so that the table stays narrow.
const addressWidth = 21

func pathTable(b *strings.Builder, paths []split.PathStatus, now time.Time, width int) {
	rows := [][]string{{"PATH", "STATE", "ADDRESS", "RTT", "LOSS",
		"UP", "BYTES", "SHARE", "DOWN", "BYTES", "SHARE", "SWITCHES", "HEARD"}}
	for _, p := range paths {
		rows = append(rows, []string{p.Name, p.State, address(p), cli.RTT(p.RTT), loss(p.Loss),
			text.Quantity(p.Up.Packets), text.Size(p.Up.Bytes), text.Percent(p.Up.Share),
			text.Quantity(p.Down.Packets), text.Size(p.Down.Bytes), text.Percent(p.Down.Share),
			text.Quantity(p.Switches), cli.Heard(p.LastHeard, now)})
	}
	t := newTable(rows, 3, 5, 8) // wider gaps before up and down
	if width == 0 || t.columns() <= width {
		t.write(b, 0, 13)
	} else {
		t.write(b, 0, 5, 11, 13)
		t.write(b, 0, 1, 5, 11)
	}
	for _, p := range paths {
		if long := p.Address.String(); p.Address.IsValid() && len(long) > addressWidth {
			fmt.Fprintf(b, "  %s: at %s\n", p.Name, long)
		}
	}
}

// table is a header and rows: first text columns, then numbers.
type table struct {
	rows   [][]string
	text   int   // number of text columns, aligned left
	wide   []int // columns after a wider gap
	widths []int
}

func newTable(rows [][]string, text int, wide ...int) table {
	t := table{rows, text, wide, make([]int, len(rows[0]))}
	for _, row := range rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	return t
}

// columns is the terminal width that the whole table needs.
func (t table) columns() int {
	n := 1 + len(t.widths) + len(t.wide) // the margin, and the gaps
	for _, w := range t.widths {
		n += w
	}
	return n
}

// write prints ranges of columns, each from its first to before its last.
func (t table) write(b *strings.Builder, ranges ...int) {
	for _, row := range t.rows {
		line := " "
		for span := range slices.Chunk(ranges, 2) {
			for i := span[0]; i < span[1]; i++ {
				if line += " "; slices.Contains(t.wide, i) {
					line += " "
				}
				fill := strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(row[i]))
				if i < t.text {
					line += row[i] + fill
				} else {
					line += fill + row[i]
				}
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

func address(p split.PathStatus) string {
	switch text := p.Address.String(); {
	case !p.Address.IsValid():
		return "-"
	case len(text) > addressWidth:
		return "(below)"
	default:
		return text
	}
}

func loss(share *float64) string {
	if share == nil {
		return "-"
	}
	return text.Percent(*share)
}
