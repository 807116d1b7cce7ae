// Package manual generates man pages and a Markdown reference from Cobra commands. Do not use it for help texts.
package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

const ExitCodes = `0  It worked.
1  It was tried and did not work.
2  The command line or a file is wrong; nothing was tried.`

// WritePages writes a man page for each command to dir, which it creates. source is the program and its release; files is
// the FILES section of the first page, or "". It changes root.
func WritePages(root *cobra.Command, dir, source, files string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// A fixed date makes the pages of a release reproducible.
	date := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	root.DisableAutoGenTag = true
	root.Long += "\n\n# EXIT CODES\n\n" + indented(ExitCodes)
	if files != "" {
		root.Long += "\n\n# FILES\n\n" + indented(files)
	}
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &date, Source: source, Manual: "Heddle"}, dir); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, root.Name()+".1")); err != nil {
		return fmt.Errorf("no page was written to %s: %w", dir, err)
	}
	return nil
}

func indented(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

// Reference returns all commands as Markdown.
func Reference(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Reference\n\nMade by `make man` from the commands themselves; `%s COMMAND --help` prints the same.\n", root.Name())
	fmt.Fprintf(&b, "\nExit codes:\n\n```\n%s\n```\n", ExitCodes)
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
