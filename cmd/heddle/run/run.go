// Package run is `heddle run`: it runs all sessions of a heddle.toml in one process.
package run

import (
	"bytes"
	"context"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/runner"
	"heddle/cmd/heddle/split"
	"heddle/cmd/heddle/stream"
	"heddle/cmd/heddle/up"
	"heddle/config"
)

// Command is `heddle run`.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:   "run FILE",
		Short: "Do all that a heddle.toml says",
		Long: `Run brings up every tunnel, relay and stream of a heddle.toml in one process,
and stays until it is interrupted; then it takes all of them down. A file with
an error starts nothing: see heddle-check(1).

Where one of them fails, all of them end; a [[dial]] table whose peer does not
answer at the start is tried again. ` + "`heddle status`" + ` shows each by its name, and
` + "`heddle down NAME`" + ` ends one of them. Under systemd the service is ready when
every tunnel is up, every relay and served program listens, every dialled one
had a session, and every other backend lets packets leave.`,
		Example: `  heddle run heddle.toml
  sudo systemctl start heddle@office    # runs /etc/heddle/office.toml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var c config.Config
			if err := cli.Loaded(cmd, args[0], config.Load, &c); err != nil {
				return err
			}
			return runner.Together(cmd.Context(), partsOf(c, cmd.OutOrStdout(), cmd.ErrOrStderr()), cmd.ErrOrStderr())
		},
	}
}

// partsOf returns the tunnels, relays and streams of a file.
func partsOf(c config.Config, out, talk io.Writer) (all []runner.Part) {
	var writing sync.Mutex
	// Output gets the session's name as a prefix. Messages already have it.
	add := func(name string, run func(ctx context.Context, out, talk io.Writer) error) {
		named, plain := &namedWriter{name: name, to: out, writing: &writing}, &namedWriter{to: talk, writing: &writing}
		all = append(all, runner.Part{Name: name, Run: func(ctx context.Context) error { return run(ctx, named, plain) }})
	}
	for _, u := range c.Ups {
		add(u.SessionName(), func(ctx context.Context, out, talk io.Writer) error { return up.Run(ctx, u, out, talk) })
	}
	for _, s := range c.Splits {
		add(s.SessionName(), func(ctx context.Context, _, talk io.Writer) error { return split.Run(ctx, s, talk) })
	}
	for _, s := range c.Serves {
		add(s.SessionName(), func(ctx context.Context, _, talk io.Writer) error { return stream.RunServe(ctx, s, talk) })
	}
	for _, d := range c.Dials {
		add(d.SessionName(), func(ctx context.Context, out, talk io.Writer) error { return stream.RunDial(ctx, d, true, out, talk) })
	}
	return all
}

// namedWriter writes whole lines, prefixed with the session's name if it has one, so that the lines of sessions do not mix.
type namedWriter struct {
	name    string
	to      io.Writer
	writing *sync.Mutex
	partial []byte
}

func (w *namedWriter) Write(text []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.partial = append(w.partial, text...)
	for {
		end := bytes.IndexByte(w.partial, '\n')
		if end < 0 {
			return len(text), nil
		}
		line := w.partial[:end+1]
		if w.name != "" && !bytes.HasPrefix(line, []byte(w.name+" ")) {
			line = append([]byte(w.name+": "), line...)
		}
		if _, err := w.to.Write(line); err != nil {
			return 0, err
		}
		w.partial = w.partial[end+1:]
	}
}
