package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"heddle/internal/errhint"

	"github.com/spf13/cobra"
)

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "heddle",
		Short: "Decide what each network gets to see of you",
		Long: `Heddle decides what each network gets to see of you.

It splits a WireGuard, QUIC, Mosh or other UDP session over several paths while
it runs, against servers that know nothing of it. Each network on the way sees a
share of the packets, and no network sees them all.

What it does not hide: that you use a tunnel, the server's address, and the size
and time of the packets that a network does see. A network that sees all paths,
or the server's own network, sees the whole session.`,
		Example: `  heddle up office.conf --via home=if:eth0 --via lte=if:wwan0
  heddle status --watch
  heddle doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Split sessions:"},
		&cobra.Group{ID: groupStream, Title: "Stripe streams:"},
		&cobra.Group{ID: groupOverlay, Title: "Overlay:"},
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupProve, Title: "Prove:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupRun, newUpCommand(), newDownCommand(), newSplitCommand(), newMoshCommand(), newConnectCommand(), newMasqueCommand(), newRunCommand())
	add(groupStream, newStreamCommand(), newSendCommand(), newRecvCommand())
	add(groupOverlay, newOverlayCommand(), newASNCommand(), newNodeCommand(), newBoardCommand())
	add(groupLook, newStatusCommand(), newDoctorCommand(), newCheckCommand(), newObserveCommand(), newProbeCommand())
	add(groupProve, newDemoCommand(), newLabCommand())
	root.AddCommand(newVersionCommand(), newCompletionCommand(), newManCommand())
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(newHelpCommand(root))
	finish(root)
	return root
}

// The groups of `heddle --help`.
const (
	groupRun     = "run"
	groupLook    = "look"
	groupStream  = "stream"
	groupOverlay = "overlay"
	groupProve   = "prove"
)

// finish makes every mistake in a command line a usage error, and one that says what to do.
func finish(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, group
	}
	args := cmd.Args
	if args == nil {
		args = cobra.NoArgs
	}
	// Cobra asks about arguments before it asks about flags that are required, or that exclude each other; what it says of
	// those is no usage error.
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return usage(cmd, argumentsError(cmd, given, err))
		}
		return usage(cmd, cmp.Or(missingFlags(cmd), cmd.ValidateFlagGroups()))
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, flagError(err)) })
	for _, c := range cmd.Commands() {
		finish(c)
	}
}

// group is what a command does that only has others below it.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	cmd.SuggestionsMinimumDistance = 2
	err := fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usageError{&hintError{err, "did you mean " + strings.Join(near, " or ") + "?"}}
	}
	return usage(cmd, err)
}

// usage makes an error one of the command line, with a hint where it has none.
func usage(cmd *cobra.Command, err error) error {
	if _, already := errors.AsType[usageError](err); err == nil || already {
		return err
	}
	if errhint.Of(err) != "" {
		return usageError{err}
	}
	return usageError{&hintError{err, "see `" + cmd.CommandPath() + " --help`"}}
}

// hintError is an error with a hint.
type hintError struct {
	error
	hint string
}

func (e *hintError) HintText() string { return e.hint }
func (e *hintError) Unwrap() error    { return e.error }

func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Explain a command",
		Long:    "Help prints what a command does, its flags and examples: the same as COMMAND --help.",
		Example: "  heddle help up",
		Args:    cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usage(root, fmt.Errorf("no command %q", strings.Join(args, " ")))
			}
			return cmd.Help()
		},
	}
}
