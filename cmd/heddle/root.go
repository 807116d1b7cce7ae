package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/asn"
	"heddle/cmd/heddle/board"
	"heddle/cmd/heddle/check"
	"heddle/cmd/heddle/completion"
	"heddle/cmd/heddle/connect"
	"heddle/cmd/heddle/disguise"
	"heddle/cmd/heddle/down"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/man"
	"heddle/cmd/heddle/masque"
	"heddle/cmd/heddle/mosh"
	"heddle/cmd/heddle/node"
	"heddle/cmd/heddle/observe"
	"heddle/cmd/heddle/overlay"
	"heddle/cmd/heddle/probe"
	"heddle/cmd/heddle/pseudonym"
	"heddle/cmd/heddle/recv"
	"heddle/cmd/heddle/run"
	"heddle/cmd/heddle/send"
	"heddle/cmd/heddle/split"
	"heddle/cmd/heddle/status"
	"heddle/cmd/heddle/stream"
	"heddle/cmd/heddle/up"
	"heddle/cmd/heddle/version"
)

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "heddle",
		Short: "Decide what each network gets to see of you",
		Long: `Heddle decides what each network gets to see of you.

It splits a WireGuard, QUIC, Mosh or other UDP session over several paths while
it runs, against servers that know nothing of it. Each network on the way sees a
share of the packets, and no network sees them all.

A network still sees that you use a tunnel, the server's address, and the size
and time of its share of the packets. An observer of all paths, such as the
server's own network, sees the whole session.`,
		Example: `  heddle up office.conf --via home=if:eth0 --via lte=if:wwan0
  heddle status --watch
  heddle doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Split sessions:"},
		&cobra.Group{ID: groupStream, Title: "Stripe streams:"},
		&cobra.Group{ID: groupOverlay, Title: "Overlay:"},
		&cobra.Group{ID: groupDisguise, Title: "Disguise and pseudonyms:"},
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupProve, Title: "Prove:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupRun, up.Command(), down.Command(), split.Command(), mosh.Command(), connect.Command(), masque.Command(), run.Command())
	add(groupStream, stream.Command(), send.Command(), recv.Command())
	add(groupOverlay, overlay.Command(), asn.Command(), node.Command(), board.Command())
	pseudonyms := pseudonym.Command()
	pseudonyms.AddCommand(pseudonymDemoCommand())
	add(groupDisguise, disguise.Command(), pseudonyms)
	add(groupLook, status.Command(), doctorCommand(), check.Command(), observe.Command(), probe.Command())
	add(groupProve, demoCommand(), labCommand())
	root.AddCommand(version.Command(), completion.Command(), man.Command(newRootCommand))
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(newHelpCommand(root))
	cli.Finish(root)
	return root
}

// The groups of `heddle --help`.
const (
	groupRun      = "run"
	groupLook     = "look"
	groupStream   = "stream"
	groupOverlay  = "overlay"
	groupDisguise = "disguise"
	groupProve    = "prove"
)

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
				return cli.UsageBy(root, fmt.Errorf("no command %q", strings.Join(args, " ")))
			}
			return cmd.Help()
		},
	}
}
