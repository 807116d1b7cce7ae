package disguise

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/disguise/cover/embed"
	"heddle/disguise/cover/embed/record"
	"heddle/internal/text"
	"heddle/observe"
	"heddle/path"
)

type recordFlags struct {
	Out     string        `flag:"out" help:"the trace database <FILE> to write" complete:"file"`
	About   string        `flag:"about" help:"<TEXT> on where the traces are from, for the database"`
	Clients []string      `flag:"client" help:"the client's <ADDRESS>, or a network such as 10.0.0.0/8; may be repeated\n(default: what the captures say, else the likely one)"`
	Filter  string        `flag:"filter" help:"only packets that match this <EXPRESSION> of tcpdump, which must be installed"`
	Least   int           `flag:"least" help:"skip conversations with less than <N> packets with data in a direction"`
	Most    time.Duration `flag:"most" help:"leave out what comes later than this in a conversation"`
	Loop    bool          `flag:"loop" help:"the traces begin again at their end"`
	JSON    bool          `flag:"json" help:"print JSON"`
}

func newRecordCommand() *cobra.Command {
	f := recordFlags{Out: "traces.db", Least: 20, Most: 5 * time.Minute}
	return bind.Flags(&cobra.Command{
		Use:   "record CAPTURE...",
		Short: "Turn captures into a trace database",
		Long: `Make a trace of each conversation over UDP or TCP in the CAPTUREs (pcap or
pcapng), for the cover embed. A trace has the size, the direction and the time
of each packet, and a template of the headers. Their content is not kept, except
bytes that are the same in all packets, and the line of text that begins a
stream.

In RTP the sequence number and the timestamp count as recorded, from another
number in each connection, and the SSRC is another one. In other protocols over
UDP, constant bytes and numbers that grow are found, and begin as recorded.

A conversation is skipped, and named, if it is too short, if no packet has room
for a handshake, or if over TCP the server speaks first.`,
		Example: "  heddle disguise record call.pcapng --out call.db --about 'ffmpeg, G.711'\n" +
			"  heddle disguise record call.pcapng game.pcapng --out mix.db --most 2m --loop",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}, &f)
}

// recorded is the answer of --json.
type recorded struct {
	Out     string           `json:"out"`
	Traces  []traceRow       `json:"traces"`
	Skipped []record.Skipped `json:"skipped"`
}

func (f *recordFlags) run(cmd *cobra.Command, captures []string) error {
	clients, err := cli.Networks(f.Clients)
	switch {
	case err != nil:
		return err
	case f.Least < 2:
		return cli.Usage(&path.Error{What: fmt.Sprintf("--least %d", f.Least), Why: "a trace has at least 2 packets each way", Hint: "for example --least 20"})
	case f.Most <= 0 || f.Most > embed.MaxDuration:
		return cli.Usage(&path.Error{What: "--most " + f.Most.String(), Why: "it is not above 0 and at most 1h", Hint: "for example --most 5m"})
	}
	options := observe.Options{Clients: clients, Strict: true, Filter: observe.NewFilter(f.Filter), Head: record.Head}
	d := &embed.Database{About: f.About}
	answer := recorded{Out: f.Out, Skipped: []record.Skipped{}}
	for _, name := range captures {
		c, err := read(name, options)
		if err != nil {
			return &path.Error{What: "capture " + name, Err: err}
		}
		if c.Stopped != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", name, c.Stopped)
		}
		label := strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
		traces, skipped := record.Traces(c, label, record.Options{Least: f.Least, Most: f.Most, Loop: f.Loop})
		d.Traces = append(d.Traces, traces...)
		answer.Skipped = append(answer.Skipped, skipped...)
	}
	if !f.JSON {
		for _, s := range answer.Skipped {
			fmt.Fprintf(cmd.ErrOrStderr(), "skipped %s: %s\n", s.What, s.Why)
		}
	}
	if len(d.Traces) == 0 {
		return &path.Error{What: "trace database " + f.Out, Why: "no conversation gives a trace", Hint: "record longer, or lower --least"}
	}
	if err := d.Write(f.Out); err != nil {
		return err
	}
	answer.Traces = rows(d)
	if f.JSON {
		return cli.WriteJSON(cmd.OutOrStdout(), answer)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, fingerprint %x\n", f.Out, text.Count(len(d.Traces), "trace"), d.Fingerprint)
	return err
}

func read(name string, options observe.Options) (*observe.Capture, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return observe.Read(file, options)
}
