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
	var verbose bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Be one replica of a board",
		Long: `Run is one replica, until interrupted. It finds the others by its replica.json,
and takes up where it was. It prints the address at which clients can come, once
they can. What was answered is never lost, whatever happens to all replicas at a
time, as long as their disks keep what they say they keep.

A replica that was away for more than 100,000 blocks cannot catch up: stop
another one, copy its directory data, and nothing else of its home.`,
		Example: `  heddle-board-bft run --home board/0`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			return bft.Run(cmd.Context(), bft.Options{Home: home, Log: log, Ready: func(at net.Addr) { fmt.Fprintln(cmd.OutOrStdout(), at) }})
		},
	}
	cmd.Flags().StringVar(&home, "home", "", "the replica's `DIRECTORY`, as init makes it")
	cmd.Flags().BoolVar(&verbose, "verbose", false, "say on stderr also what CometBFT does")
	_ = cmd.MarkFlagRequired("home")
	_ = cmd.MarkFlagDirname("home")
	return cmd
}
