// Package cli is what all commands share: errors of usage and exit codes, what is written for people and as JSON, and the
// width of the terminal.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"heddle/internal/errhint"

	"github.com/spf13/cobra"
)

// Exit codes, as documented in heddle(1).
const (
	ExitOK      = 0
	ExitFailure = 1 // it was tried and did not work
	ExitUsage   = 2 // the command line or a file is wrong; nothing was tried
)

// usageError marks a mistake in the command line or in a file.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage makes an error one of the command line or of a file.
func Usage(err error) error { return usageError{err} }

// Run carries a command line out, prints its error, and gives the exit code.
func Run(ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	if status, ok := errors.AsType[ExitStatus](err); ok {
		return int(status)
	}
	if err.Error() == context.Canceled.Error() { // as Go has it
		err = errors.New("interrupted")
	}
	printError(stderr, err)
	if _, ok := errors.AsType[usageError](err); ok {
		return ExitUsage
	}
	return ExitFailure
}

// printError prints what and why on one line, and each hint on its own.
func printError(w io.Writer, err error) {
	fmt.Fprintln(w, "heddle:", err)
	if hint := errhint.Of(err); hint != "" {
		fmt.Fprintln(w, "hint:", hint)
	}
}

// ExitStatus is the end of a program that heddle ran in its own place. The program has said what there is to say.
type ExitStatus int

func (e ExitStatus) Error() string { return fmt.Sprintf("ended with %d", int(e)) }
