package main

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"heddle/board/bft"
)

func newRunCommand() *cobra.Command {
	var home string
	var verbose, fromSnapshot bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Be one replica of a board",
		Long: `Run is one replica, until interrupted. It finds the others by its replica.json,
and takes up where it was. It prints the address at which clients can come, once
they can. What was answered is never lost, whatever happens to all replicas at a
time, as long as their disks keep what they say they keep.

A replica that was away for more than 100,000 blocks cannot do after the others
what they did. It takes up their state: move the directory data of its home
away, and nothing else, and run it with --from-snapshot. The others make a
snapshot each 8,192 blocks; before the first one, leave the flag out. The state
is taken up only if its hash is the one that two thirds of the replicas signed.
Until then it answers no client.`,
		Example: `  heddle-board-bft run --home board/0
  mv board/0/data old && heddle-board-bft run --home board/0 --from-snapshot`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			return bft.Run(cmd.Context(), bft.Options{Home: home, Log: log, FromSnapshot: fromSnapshot, Ready: func(at net.Addr) { fmt.Fprintln(cmd.OutOrStdout(), at) }})
		},
	}
	cmd.Flags().StringVar(&home, "home", "", "the replica's `DIRECTORY`, as init makes it")
	cmd.Flags().BoolVar(&fromSnapshot, "from-snapshot", false, "without data, take up the state of the others")
	cmd.Flags().BoolVar(&verbose, "verbose", false, "say on stderr also what CometBFT does")
	_ = cmd.MarkFlagRequired("home")
	_ = cmd.MarkFlagDirname("home")
	return cmd
}
