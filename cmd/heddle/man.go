package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"heddle/internal/manual"
)

func newManCommand() *cobra.Command {
	var dir, reference string
	cmd := &cobra.Command{
		Use:    "man",
		Short:  "Write the man pages and the reference",
		Hidden: true,
		Long: `Man writes a man page of each command to a directory, or all commands as one
Markdown page. It is for those who build packages.`,
		Example: "  heddle man --dir dist/man\n  heddle man --reference docs/reference.md",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" && reference == "" {
				return usage(cmd, fmt.Errorf("neither --dir nor --reference is given"))
			}
			root := newRootCommand()
			if reference != "" {
				if err := os.WriteFile(reference, []byte(manual.Reference(root)), 0o644); err != nil {
					return err
				}
			}
			if dir == "" {
				return nil
			}
			return manual.WritePages(root, dir, "Heddle "+release, filesText)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write a man page of each command to `DIR`")
	cmd.Flags().StringVar(&reference, "reference", "", "write all commands as Markdown to `FILE`")
	return cmd
}

// filesText is the part of heddle(1) about files.
const filesText = `/run/heddle, or $XDG_RUNTIME_DIR/heddle where not root
    The sockets of what runs, and what is needed to clean up after a crash.
    HEDDLE_RUN_DIR names another directory.`
