package disguise

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/disguise/cover/embed"
	"heddle/internal/atomicfile"
	"heddle/internal/text"
	"heddle/observe/plot"
	"heddle/path"
)

func newTracesCommand() *cobra.Command {
	var f struct {
		bind.Printing
		Plot string `flag:"plot" help:"also draw the traces over time, as this SVG <FILE>"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "traces [FILE]",
		Short: "List and plot the traces of a database",
		Long: `List the traces of a database for the cover embed: what was recorded, for how
long, the packets and bytes each way, the length of the header, and the most
that a hidden stream can send each way while the trace plays once. Without FILE
it is the database that Heddle brings.

Client and bridge need the same file: the fingerprint tells.`,
		Example: "  heddle disguise traces\n" +
			"  heddle disguise traces call.db --plot call.svg",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			d, err := embed.Open(name)
			if err != nil {
				return err
			}
			if f.Plot != "" {
				if err := atomicfile.Write(f.Plot, []byte(plot.Standalone(draw(d))), 0o644); err != nil {
					return &path.Error{What: "plot " + f.Plot, Err: err}
				}
			}
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), traceList{fmt.Sprintf("%x", d.Fingerprint), d.About, rows(d)})
			}
			return printTraces(cmd.OutOrStdout(), d)
		},
	}, &f)
}

type traceList struct {
	Fingerprint string     `json:"fingerprint"`
	About       string     `json:"about"`
	Traces      []traceRow `json:"traces"`
}

// traceRow describes a trace.
type traceRow struct {
	Name      string  `json:"name"`
	Protocol  string  `json:"protocol"`
	Transport string  `json:"transport"` // "udp" or "tcp"
	Port      uint16  `json:"port"`
	Seconds   float64 `json:"seconds"`
	Loop      bool    `json:"loop"`
	Up        side    `json:"up"`
	Down      side    `json:"down"`
}

// side is one direction of a trace.
type side struct {
	Packets  int   `json:"packets"`
	Bytes    int64 `json:"bytes"`    // that UDP or TCP carries
	Header   int   `json:"header"`   // bytes
	Capacity int64 `json:"capacity"` // bytes of a hidden stream, at most
}

func rows(d *embed.Database) (all []traceRow) {
	for i := range d.Traces {
		t := &d.Traces[i]
		row := traceRow{Name: t.Name, Protocol: t.Protocol, Transport: "tcp", Port: t.Port, Seconds: float64(t.Duration().Microseconds()) / 1e6, Loop: t.Loop}
		if t.Datagrams {
			row.Transport = "udp"
		}
		for _, down := range []bool{false, true} {
			s := &row.Up
			if down {
				s = &row.Down
			}
			s.Packets, s.Bytes = t.Count(down)
			s.Header, s.Capacity = t.Header(down).Size(), t.Capacity(down)
		}
		all = append(all, row)
	}
	return all
}

func printTraces(w io.Writer, d *embed.Database) error {
	fmt.Fprintf(w, "fingerprint %x\n", d.Fingerprint)
	if d.About != "" {
		fmt.Fprintln(w, text.Printable(d.About))
	}
	fmt.Fprintln(w)
	return cli.Table(w, "TRACE\tPROTOCOL\tOVER\tPORT\tTIME\tPACKETS UP\tDOWN\tBYTES UP\tDOWN\tHEADER\tCAPACITY UP\tDOWN", rows(d), func(r traceRow) []any {
		return []any{r.Name, r.Protocol, r.Transport, r.Port, duration(r), r.Up.Packets, r.Down.Packets, text.Size(r.Up.Bytes), text.Size(r.Down.Bytes),
			header(r), text.Size(r.Up.Capacity), text.Size(r.Down.Capacity)}
	})
}

func duration(r traceRow) string {
	if r.Loop {
		return fmt.Sprintf("%.1f s, loops", r.Seconds)
	}
	return fmt.Sprintf("%.1f s", r.Seconds)
}

func header(r traceRow) string {
	if r.Up.Header == r.Down.Header {
		return fmt.Sprint(r.Up.Header)
	}
	return fmt.Sprintf("%d/%d", r.Up.Header, r.Down.Header)
}

// bins are the parts of the time axis of a plot.
const bins = 300

// draw shows all traces over one time axis.
func draw(d *embed.Database) string {
	lanes := plot.Lanes{Title: "Traces of the cover embed", Description: "Bytes a second of each trace, from the client above the line and from the server below.",
		Width: 960, Format: func(rate float64) string { return text.Size(int64(rate)) + "/s" }}
	for i := range d.Traces {
		lanes.Seconds = max(lanes.Seconds, d.Traces[i].Duration().Seconds())
	}
	width := max(lanes.Seconds, 1e-6) / bins
	for i := range d.Traces {
		t := &d.Traces[i]
		lane := plot.Lane{Label: t.Name, Up: make([]float64, bins), Down: make([]float64, bins), Colour: i}
		for _, p := range t.Packets {
			values := lane.Up
			if p.Down {
				values = lane.Down
			}
			values[min(int(p.At.Seconds()/width), bins-1)] += float64(p.Size) / width
		}
		lanes.Lanes = append(lanes.Lanes, lane)
	}
	return lanes.SVG()
}
