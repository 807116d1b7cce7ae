package observe

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/cli"
	"heddle/internal/text"
	"heddle/observe"
)

func newTraceCommand() *cobra.Command {
	var f observeFlags
	command := &cobra.Command{
		Use:   "trace DIR...",
		Short: "Turn captures into a Parquet trace",
		Long: "Write the packets of each DIR, one session each, as a Parquet table with a row\nfor each observer and the columns\n\n" +
			"  label      string       the directory's name\n" +
			"  monitored  boolean      true\n" +
			"  load       int64        which DIR\n" +
			"  path       int16        which observer, by name from 0; -1 for the only one\n" +
			"  time_us    list<int32>  microseconds since the session's first packet\n" +
			"  size       list<int32>  bytes of the IP packets; plus is client to server\n\n" +
			"It is what heddle-eval reads. DIR is as for `heddle observe report`.",
		Example: "  heddle observe trace captures --out trace.parquet\n" +
			"  heddle observe trace visits/* --out visits.parquet --json",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return observeTrace(cmd, args, f) },
	}
	addClientFlag(command, &f)
	command.Flags().StringVar(&f.out, "out", "trace.parquet", "the `FILE` to write")
	command.Flags().BoolVar(&f.json, "json", false, "print a summary as JSON")
	return command
}

func observeTrace(cmd *cobra.Command, dirs []string, f observeFlags) error {
	var sessions []*observe.Session
	for _, dir := range dirs {
		s, err := loadSession("", dir, f.clients)
		if err != nil {
			return err
		}
		for _, o := range s.Observers {
			if o.Stopped != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s, %s: %s\n", s.Label, o.Name, o.Stopped)
			}
		}
		sessions = append(sessions, s)
	}
	var summary observe.TraceSummary
	err := writeFile("trace "+f.out, f.out, 0o666, func(w io.Writer) (err error) {
		summary, err = observe.WriteTrace(w, sessions...)
		return err
	})
	if err != nil {
		return err
	}
	summary.Out = f.out
	if f.json {
		return cli.WriteJSON(cmd.OutOrStdout(), summary)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s of %s, %s\n", f.out, text.Count(summary.Packets, "packet"),
		text.Count(summary.Sessions, "session"), text.Count(len(summary.Paths), "path"))
	return err
}
