// Package checks has the lines of commands that look at a machine or a service and say what to do.
package checks

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"heddle/cmd/heddle/internal/cli"
)

// Verdict is the result of a check.
type Verdict string

// The verdicts. Unknown means that this user may not find out.
const (
	Yes     Verdict = "yes"
	Partly  Verdict = "partly"
	No      Verdict = "no"
	Unknown Verdict = "unknown"
)

// Result is one line.
type Result struct {
	Check   string  `json:"check"` // a stable name, such as "udp-gso"
	Verdict Verdict `json:"verdict"`
	What    string  `json:"what"`           // finding
	Hint    string  `json:"hint,omitempty"` // what to do unless it is yes
}

// Text writes results as lines with columns.
func Text(w io.Writer, all []Result) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range all {
		Row(table, r.Check, r)
	}
	return table.Flush()
}

// Row writes one result into a table, under any name.
func Row(w io.Writer, name string, r Result) {
	fmt.Fprintf(w, "  %s\t%s\t%s\n", name, r.Verdict, r.What)
	if r.Hint != "" && r.Verdict != Yes {
		fmt.Fprintf(w, "  \t\thint: %s\n", r.Hint)
	}
}

// Print prints results alone, as wide as the terminal.
func Print(w io.Writer, all []Result) error {
	var b strings.Builder
	if err := Text(&b, all); err != nil {
		return err
	}
	_, err := io.WriteString(w, cli.Folded(b.String(), cli.TerminalWidth(w)))
	return err
}
