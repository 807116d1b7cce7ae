// Command heddle-board-bft runs one replica of a Byzantine fault tolerant board.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"heddle/internal/errhint"
	"heddle/internal/manual"
)

// Exit codes, as in heddle.
const (
	exitFailure = 1 // it was tried and did not work
	exitUsage   = 2 // the command line is wrong; nothing was tried
)

// usageError marks a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root, ran := newRootCommand(), false
	finish(root, &ran)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "heddle-board-bft:", err)
	switch hint := errhint.Of(err); {
	case hint != "":
		fmt.Fprintln(stderr, "hint:", hint)
	case !ran:
		fmt.Fprintln(stderr, "hint: see `heddle-board-bft --help`")
	}
	if _, ok := errors.AsType[usageError](err); ok || !ran {
		return exitUsage
	}
	return exitFailure
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "heddle-board-bft",
		Short: "Run a board on 3f+1 machines, of which f may lie",
		Long: `Heddle-board-bft runs a board like heddle board run does, but on 3f+1 machines.
CometBFT orders all operations. A client of heddle board accepts an answer that
f+1 machines give alike.

Up to f operators cannot answer wrongly, withhold a tuple or stop the board.
Each operator can still read all tuples. While fewer than 2f+1 machines are
connected, nothing can be written, and no answer is wrong.`,
		Example: `  heddle-board-bft init --dir board --hosts a.example,b.example,c.example,d.example
  heddle-board-bft run --home board/0
  heddle-board-bft status --home board/0`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newInitCommand(), newRunCommand(), newStatusCommand(), newManCommand())
	root.SetUsageTemplate(root.UsageTemplate() + "\nExit codes:\n  " + strings.ReplaceAll(manual.ExitCodes, "\n", "\n  ") + "\n")
	return root
}

// finish marks errors before a command runs as usage errors.
func finish(cmd *cobra.Command, ran *bool) {
	if do := cmd.RunE; do != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*ran = true
			return do(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		finish(c, ran)
	}
}
