package observe

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/internal/text"
	"heddle/observe"
	"heddle/path"
)

type traceFlags struct {
	clientFlags
	Filter   string        `flag:"filter" help:"only packets that match this <EXPRESSION> of tcpdump, which must be installed"`
	Size     string        `flag:"size" help:"<WHAT> sizes count: ip, or payload, which leaves out packets that carry none" complete:"ip payload"`
	Per      string        `flag:"per" help:"<WHAT> a session is: dir, gap (packets between two silences) or flow (one conversation)" complete:"dir gap flow"`
	Gap      time.Duration `flag:"gap" help:"the silence between two sessions, for --per gap"`
	Sort     bool          `flag:"sort" help:"put packets in the order of time where times go backwards"`
	Contents bool          `flag:"contents" help:"also keep entropy and printable share of payloads, and the first bytes of each connection, which may be private"`
	SkipBad  bool          `flag:"skip-bad" help:"leave out sessions that cannot be read, and name them"`
	Sessions string        `flag:"sessions" help:"read the sessions of this JSON <FILE> instead of DIRs: a list of {\"label\": NAME, \"paths\": {OBSERVER: [CAPTURE]}}" complete:"file"`
	Out      string        `flag:"out" help:"the <FILE> to write"`
	JSON     bool          `flag:"json" help:"print a summary as JSON"`
}

func newTraceCommand() *cobra.Command {
	f := traceFlags{Size: "ip", Per: "dir", Gap: 5 * time.Second, Out: "trace.parquet"}
	return bind.Flags(&cobra.Command{
		Use:   "trace {DIR|FILE}...",
		Short: "Turn captures into a Parquet trace",
		Long: "Write the packets of each DIR, one session each, as a Parquet table with a row\nfor each observer and the columns\n\n" +
			"  label      string       the directory's name\n" +
			"  monitored  boolean      true\n" +
			"  load       int64        which session\n" +
			"  path       int16        which observer, by name from 0; -1 for the only one\n" +
			"  time_us    list<int32>  microseconds since the session's first packet\n" +
			"  size       list<int32>  bytes of the IP packets; plus is client to server\n" +
			"  connection list<int32>  which conversation of the row, from 0\n" +
			"  payload    list<int32>  bytes that TCP or UDP carries\n" +
			"  ack_us     list<int32>  microseconds until TCP acknowledges the packet, or -1\n\n" +
			"With --contents also, as far as it was captured:\n\n" +
			"  entropy    list<float>  bits per byte of each payload\n" +
			"  printable  list<float>  share of printable ASCII in each payload\n" +
			"  first_up   list<binary> beginning of what the client sent, by connection\n" +
			"  first_down list<binary> beginning of what the server sent\n\n" +
			"It is what heddle-eval reads. DIR is as for `heddle observe report`; a capture\n" +
			"FILE is a session with one observer.\n\n" +
			"A session with times that go backwards by more than 10 ms is an error; so is an\n" +
			"unknown link type. A truncated capture is read as far as possible, and named.",
		Example: "  heddle observe trace captures --out trace.parquet\n" +
			"  heddle observe trace visits/* --out visits.parquet --json\n" +
			"  heddle observe trace day.pcap --client 10.0.0.0/8 --filter 'udp port 51820' --per gap",
		Args: func(cmd *cobra.Command, args []string) error {
			if f.Sessions != "" {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.MinimumNArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}, &f)
}

// listed is one session in the file of --sessions.
type listed struct {
	Label string              `json:"label"`
	Paths map[string][]string `json:"paths"`
}

func (f *traceFlags) options() (read observe.Options, cut observe.TraceOptions, err error) {
	switch {
	case f.Size != "ip" && f.Size != "payload":
		err = &path.Error{What: fmt.Sprintf("--size %q", f.Size), Why: "there is no such size", Hint: "ip or payload"}
	case f.Per != "dir" && f.Per != "gap" && f.Per != "flow":
		err = &path.Error{What: fmt.Sprintf("--per %q", f.Per), Why: "it is no kind of session", Hint: "dir, gap or flow"}
	case f.Gap <= 0:
		err = &path.Error{What: "--gap " + f.Gap.String(), Why: "it is not above 0", Hint: "for example --gap 5s"}
	}
	if err != nil {
		return read, cut, cli.Usage(err)
	}
	cut = observe.TraceOptions{Payload: f.Size == "payload", Flows: f.Per == "flow", Sort: f.Sort}
	if f.Per == "gap" {
		cut.Gap = f.Gap
	}
	clients, err := cli.Networks(f.Client)
	return observe.Options{Clients: clients, Strict: true, Filter: observe.NewFilter(f.Filter), Contents: f.Contents}, cut, err
}

// load returns the sessions, each with a label and a function that reads it.
func (f *traceFlags) load(dirs []string, options observe.Options) (sessions []toLoad, err error) {
	for _, dir := range dirs {
		label, err := labelOf(dir)
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, toLoad{label, func() (*observe.Session, error) { return observe.Load(label, dir, options) }})
	}
	if f.Sessions == "" {
		return sessions, nil
	}
	var list []listed
	data, err := os.ReadFile(f.Sessions)
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, &path.Error{What: "--sessions " + f.Sessions, Err: err}
	}
	for _, s := range list {
		var places []observe.Place
		for _, name := range slices.Sorted(maps.Keys(s.Paths)) {
			places = append(places, observe.Place{Name: name, Files: s.Paths[name]})
		}
		sessions = append(sessions, toLoad{s.Label, func() (*observe.Session, error) { return observe.LoadPlaces(s.Label, places, options) }})
	}
	return sessions, nil
}

type toLoad struct {
	label string
	read  func() (*observe.Session, error)
}

func (f *traceFlags) run(cmd *cobra.Command, dirs []string) error {
	options, cut, err := f.options()
	if err != nil {
		return err
	}
	sessions, err := f.load(dirs, options)
	if err != nil {
		return err
	}
	trace := observe.NewTrace()
	for _, s := range sessions {
		session, err := s.read()
		if err == nil {
			err = trace.Add(session, cut)
		}
		switch {
		case err != nil && !f.SkipBad:
			return err
		case err != nil:
			trace.Skip(s.label, err)
		}
	}
	err = writeFile("trace "+f.Out, f.Out, 0o666, trace.Write)
	if err != nil {
		return err
	}
	trace.Summary.Out = f.Out
	return f.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), trace.Summary)
}

func (f *traceFlags) print(out, talk io.Writer, s observe.TraceSummary) error {
	for _, c := range s.Captures {
		if c.Stopped != "" {
			fmt.Fprintf(talk, "%s, %s: %s\n", c.Session, c.Observer, c.Stopped)
		}
	}
	for _, k := range s.Skipped {
		fmt.Fprintf(talk, "left out %s: %s: %s\n", k.Session, k.What, k.Why)
	}
	if f.JSON {
		return cli.WriteJSON(out, s)
	}
	_, err := fmt.Fprintf(out, "%s: %s of %s, %s\n", f.Out, text.Count(s.Packets, "packet"),
		text.Count(s.Sessions, "session"), text.Count(len(s.Paths), "path"))
	return err
}
