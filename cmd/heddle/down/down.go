// Package down is `heddle down`: it ends a session, or cleans up after its crash.
package down

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/leftover"
	"heddle/cmd/heddle/split"
	"heddle/config"
	"heddle/path"
	"heddle/path/wgconf"
	"heddle/split/tunnel"
)

// stopPatience is how long a running heddle may take to undo its changes: commands in its file may be slow.
const stopPatience = 30 * time.Second

// Command is `heddle down`.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:   "down NAME",
		Short: "End a session, and clean up after a crash",
		Long: `Down asks the session called NAME to end, and waits until it has taken back all
that it changed on this machine. Where it crashed, or was killed, down takes
back what it left: routing rules, DNS, and last the kill switch or the guard;
of an overlay node the forwarding of the kernel, and then the table that kept it
to leases. A setting that somebody changed since stays, and down says so.

NAME is what ` + "`heddle status`" + ` shows; the WireGuard file will do as well.`,
		Example: `  heddle down office
  heddle down ./office.conf`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := wgconf.NameOf(args[0])
			if err == nil {
				err = config.CheckSessionName(name)
			}
			if err != nil {
				return cli.Usage(err)
			}
			return runDown(cmd.Context(), name, func(format string, a ...any) {
				fmt.Fprintf(cmd.OutOrStdout(), format+"\n", a...)
			})
		},
	}
}

// runDown ends a session and removes what its crash left.
func runDown(ctx context.Context, name string, say func(string, ...any)) error {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	stopErr := control.Stop(ctx, name)
	if _, notRunning := errors.AsType[*control.NotRunningError](stopErr); stopErr != nil && !notRunning {
		return stopErr
	}
	lines, stays, crashed, err := cleanUp(name)
	for _, line := range lines {
		say("%s: a crash left this, taken back: %s", name, line)
	}
	for _, line := range stays {
		say("%s: this stays as it is: %s", name, line)
	}
	switch {
	case err != nil:
		return err
	case stopErr == nil, crashed && len(lines) == 0:
		say("%s is down", name)
	case len(lines) == 0:
		return stopErr
	}
	return nil
}

// cleanUp holds the name while it cleans, so that no session can start meanwhile.
func cleanUp(name string) (lines, stays []string, crashed bool, err error) {
	server, err := control.Listen(name)
	if err != nil {
		return nil, nil, false, err
	}
	_, crashed, _ = tunnel.Left(control.Dir(), name) // Clean fails as well where this does
	lines, err = tunnel.Clean(control.Dir(), name, false)
	more, backendsErr := split.CleanBackends(name, false, split.Guarded...)
	settings, stays, settingsErr := leftover.Clean(name)
	_ = path.RemoveGuard() // it has no effect any more, and removing it takes rights that a session may not need
	return slices.Concat(lines, more, settings), stays, crashed, errors.Join(err, backendsErr, settingsErr, server.Close())
}
