package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
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
				if err := os.WriteFile(reference, []byte(referenceText(root)), 0o644); err != nil {
					return err
				}
			}
			if dir == "" {
				return nil
			}
			return writeManPages(root, dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write a man page of each command to `DIR`")
	cmd.Flags().StringVar(&reference, "reference", "", "write all commands as Markdown to `FILE`")
	return cmd
}

// exitCodes is the part of heddle(1) about exit codes; so is filesText about files.
const exitCodes = `0  It worked.
1  It was tried and did not work.
2  The command line or a file is wrong; nothing was tried.`

const filesText = `/run/heddle, or $XDG_RUNTIME_DIR/heddle where not root
    The sockets of what runs, and what is needed to clean up after a crash.
    HEDDLE_RUN_DIR names another directory.`

func writeManPages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// One date for all, so that the same release gives the same pages: that of the first day it was worked on.
	date := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	root.DisableAutoGenTag = true
	root.Long += "\n\n# EXIT CODES\n\n" + indented(exitCodes) + "\n\n# FILES\n\n" + indented(filesText)
	header := &doc.GenManHeader{Section: "1", Date: &date, Source: "Heddle " + release, Manual: "Heddle"}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, "heddle*.1"))
	if err == nil && len(pages) == 0 {
		err = fmt.Errorf("no page was written to %s", dir)
	}
	return err
}

func indented(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

// referenceText gives docs/reference.md.
func referenceText(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Reference\n\nMade by `make man` from the commands themselves; `heddle COMMAND --help` prints the same.\n")
	fmt.Fprintf(&b, "\nExit codes:\n\n```\n%s\n```\n", exitCodes)
	referenceOf(&b, root)
	return b.String()
}

func referenceOf(b *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n", cmd.CommandPath(), cmd.Short)
	text := strings.TrimSpace(cmd.Long)
	if text != "" {
		fmt.Fprintf(b, "\n```\n%s\n```\n", text)
	}
	cmd.InitDefaultHelpFlag()
	fmt.Fprintf(b, "\nUsage: `%s`\n", cmd.UseLine())
	if cmd.HasExample() {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", unindented(cmd.Example))
	}
	if flags := cmd.LocalFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(b, "\n```\n%s```\n", flags.FlagUsages())
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			referenceOf(b, c)
		}
	}
}

func unindented(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}
