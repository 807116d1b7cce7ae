package main

import (
	"os"

	"github.com/spf13/cobra"

	"heddle/internal/manual"
)

// filesText is the part of heddle-board-bft(1) about files.
const filesText = `HOME/replica.json
    Where clients and replicas come, and where the others are. It may be
    changed while the replica does not run.
HOME/genesis.json
    What all replicas agree on: their keys, the limits, and who is let in.
HOME/identity.pem, HOME/node_key.json, HOME/validator_key.json
    The replica's keys. Nobody else may have them.
HOME/validator_state.json
    What the replica voted for last. Never put back an old one.
HOME/data
    Blocks and tuples.`

func newManCommand() *cobra.Command {
	var dir, reference string
	cmd := &cobra.Command{
		Use:    "man",
		Short:  "Write the man pages and the reference",
		Hidden: true,
		Long: `Man writes a man page of each command to a directory, or all commands as one
Markdown page. It is for those who build packages.`,
		Example: "  heddle-board-bft man --dir dist/man\n  heddle-board-bft man --reference reference.md",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if reference != "" {
				if err := os.WriteFile(reference, []byte(manual.Reference(newRootCommand())), 0o644); err != nil {
					return err
				}
			}
			if dir == "" {
				return nil
			}
			root := newRootCommand()
			root.InitDefaultCompletionCmd()
			return manual.WritePages(root, dir, "Heddle", filesText)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write a man page of each command to `DIR`")
	cmd.Flags().StringVar(&reference, "reference", "", "write all commands as Markdown to `FILE`")
	cmd.MarkFlagsOneRequired("dir", "reference")
	return cmd
}
