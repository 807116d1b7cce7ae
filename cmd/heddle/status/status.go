// Package status is `heddle status`: it shows what runs, as a table or as JSON.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/internal/netutil"
	"heddle/path"
	"heddle/split"
)

// Command is `heddle status`.
func Command() *cobra.Command {
	var f struct {
		JSON  bool `flag:"json" help:"print the status as JSON; with --watch one line a second"`
		Watch bool `flag:"watch" short:"w" help:"show it again each second, until q or an interrupt"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "status [NAME]",
		Short: "Show what runs: each session and each of its paths",
		Long: `Status asks each running heddle of this user, or the one called NAME, for its
state. For each session it prints the paths: state, local address, round-trip
time, loss, packets and bytes with their share up (from here) and down (to
here), switches to the path, when it was last heard, and why it is idle. For
heddle masque serve it prints the flows of each user and the refusals; for
heddle stream, send and recv each session with its paths; for heddle node run
and heddle board run what they hold and refused.

A session or a node that crashed may leave changes on this machine, such as a
kill switch or forwarding. Status names them until ` + "`heddle down NAME`" + ` undoes
them. A guard that keeps the kernel's answers to late packets off other networks
ends by itself. Without NAME, status shows such guards, as far as you may look
at them.

Loss counts datagrams towards here, if the protocol numbers them. All numbers
are this machine's own counts. A capture shows what a network really saw: see
heddle-observe(1).`,
		Example: `  heddle status
  heddle status office --watch
  heddle status --json | jq '.running[].sessions[].paths[] | {name, up, down}'`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeRunning,
		RunE: func(cmd *cobra.Command, args []string) error {
			look := func(ctx context.Context) (answer, error) { return lookAt(ctx, args) }
			out := cmd.OutOrStdout()
			if f.Watch {
				return watchStatus(cmd.Context(), cmd.InOrStdin(), out, look, f.JSON)
			}
			found, err := look(cmd.Context())
			if err != nil {
				return err
			}
			if f.JSON {
				return cli.WriteJSON(out, found)
			}
			return printStatus(out, found, time.Now(), cli.TerminalWidth(out))
		},
	}, &f)
}

// answer is the output of `heddle status --json`.
type answer struct {
	Running []running `json:"running"`
	Left    []left    `json:"left,omitempty"`
	// Passing is what sessions that ended left and what ends by itself.
	Passing []path.Leftover `json:"passing,omitempty"`
}

// running is the status of one heddle, or why it did not answer.
type running struct {
	Name string `json:"name"`
	control.Status
	Error string `json:"error,omitempty"`
}

// lookAt asks the named heddle, or all, and looks for what crashes left. Among all, one that does not answer is reported,
// and is no failure.
func lookAt(ctx context.Context, names []string) (found answer, err error) {
	all := len(names) == 0
	if found.Left, err = lookLeft(names); err != nil {
		return found, err
	}
	if all {
		if names, err = control.Names(); err != nil {
			return found, err
		}
		found.Passing = path.Leftovers(time.Now(), len(names) == 0)
	}
	found.Running = []running{}
	for _, name := range names {
		one := running{Name: name}
		var err error
		one.Status, err = control.Ask(ctx, name)
		if one.Sessions == nil {
			one.Sessions = []split.Status{} // an empty list in JSON, not null
		}
		_, gone := errors.AsType[*control.NotRunningError](err)
		switch {
		case all && gone, gone && len(found.Left) > 0: // it ended meanwhile, or crashed
			continue
		case all && err != nil:
			one.Error = err.Error()
		case err != nil:
			return found, err
		}
		found.Running = append(found.Running, one)
	}
	return found, nil
}

// watchStatus shows the status each second until ctx ends. On a terminal it redraws in place, and q ends it too.
func watchStatus(ctx context.Context, in io.Reader, out io.Writer, look func(context.Context) (answer, error), asJSON bool) error {
	waiting, before, after := ctx, "", "\n"
	if !asJSON && cli.IsTerminal(out) {
		before, after = "\x1b[H\x1b[J", "" // home and clear (ECMA-48, CUP and ED)
		var restore func()
		waiting, restore = untilQ(ctx, in)
		defer restore()
	}
	for {
		found, err := look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if asJSON {
			err = json.NewEncoder(out).Encode(found)
		} else {
			var b strings.Builder
			_ = printStatus(&b, found, time.Now(), cli.TerminalWidth(out))
			_, err = io.WriteString(out, before+b.String()+after)
		}
		if err != nil {
			return err
		}
		if netutil.Sleep(waiting, time.Second) != nil {
			return nil
		}
	}
}

func completeRunning(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names, err := control.Names()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
