// Package run is `heddle run`: all that a heddle.toml says, in one process.
package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/sdnotify"
	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/stream"
	"heddle/cmd/heddle/up"
	"heddle/config"
	"heddle/internal/text"
	"heddle/split"

	splitcmd "heddle/cmd/heddle/split"
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
			sessions := sessionsOf(c, cmd.OutOrStdout(), cmd.ErrOrStderr())
			go tellSystemd(cmd.Context(), sessions, cmd.ErrOrStderr())
			return runAll(cmd.Context(), sessions)
		},
	}
}

// session is one tunnel, relay or stream of a file.
type session struct {
	name string
	run  func(context.Context) error
	// ready reports whether it does what it is there for, as its own status says.
	ready func(context.Context) bool
}

func sessionsOf(c config.Config, out, talk io.Writer) []session {
	var writing sync.Mutex
	var all []session
	for _, u := range c.Ups {
		name := u.SessionName()
		answer := &namedWriter{name: name, to: out, writing: &writing}
		all = append(all, session{name, func(ctx context.Context) error {
			return up.Run(ctx, u, answer, &namedWriter{to: talk, writing: &writing})
		}, func(ctx context.Context) bool {
			s, err := control.Status(ctx, name)
			return err == nil && len(s) > 0 && s[0].State == "running"
		}})
	}
	for _, s := range c.Splits {
		name := s.SessionName()
		all = append(all, session{name, func(ctx context.Context) error {
			return splitcmd.Run(ctx, s, &namedWriter{to: talk, writing: &writing})
		}, func(ctx context.Context) bool {
			all, err := control.Status(ctx, name)
			return err == nil && splitReady(all)
		}})
	}
	for _, s := range c.Serves {
		name := s.SessionName()
		all = append(all, session{name, func(ctx context.Context) error {
			return stream.RunServe(ctx, s, &namedWriter{to: talk, writing: &writing})
		}, streamReady(name)})
	}
	for _, d := range c.Dials {
		name := d.SessionName()
		answer := &namedWriter{name: name, to: out, writing: &writing}
		all = append(all, session{name, func(ctx context.Context) error {
			return stream.RunDial(ctx, d, true, answer, &namedWriter{to: talk, writing: &writing})
		}, streamReady(name)})
	}
	return all
}

// streamReady reports whether peers can come, or that there was a session to be had.
func streamReady(name string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		s, err := control.About[control.Stream](ctx, name, control.KindStream)
		return err == nil && s != nil && s.Why == ""
	}
}

// splitReady reports whether datagrams may leave. A relay that listens takes them, and its sessions come with them; a
// backend below the socket has one session, which says.
func splitReady(all []split.Status) bool {
	return !slices.ContainsFunc(all, func(s split.Status) bool { return s.Backend != split.DefaultBackend && s.State != "running" })
}

// runAll runs the sessions side by side until all have ended. Where one fails, the others are stopped.
func runAll(ctx context.Context, sessions []session) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make([]error, len(sessions))
	var running sync.WaitGroup
	for i, s := range sessions {
		running.Go(func() {
			if err := s.run(ctx); err != nil {
				failed[i] = fmt.Errorf("%s: %w", s.name, err)
				stop()
			}
		})
	}
	running.Wait()
	return errors.Join(failed...)
}

// tellSystemd says READY once all sessions are (sd_notify(3)). It does nothing where systemd did not start us.
func tellSystemd(ctx context.Context, sessions []session, talk io.Writer) {
	systemd, err := sdnotify.New()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		fmt.Fprintln(talk, "heddle: cannot tell systemd:", err)
		return
	}
	defer systemd.Close()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for _, s := range sessions {
		for !s.ready(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
	if err := systemd.Notify(sdnotify.Ready, sdnotify.Statusf("%s up", text.Count(len(sessions), "session"))); err != nil {
		fmt.Fprintln(talk, "heddle: cannot tell systemd:", err)
	}
}

// namedWriter writes whole lines, each with the name of its session where it has one, so that those of several
// sessions do not mix.
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
