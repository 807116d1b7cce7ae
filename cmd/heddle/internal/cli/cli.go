// Package cli is shared by all commands: usage errors, exit codes, text and JSON output, and the terminal's width.
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
	ExitFailure = 1 // it failed after trying
	ExitUsage   = 2 // the command line or a file is wrong; nothing was tried
)

// usageError marks an error in the command line or in a file.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks an error as one of the command line or of a file.
func Usage(err error) error { return usageError{err} }

// Run runs a command line, prints its error, and returns the exit code.
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
	if err.Error() == context.Canceled.Error() { // Go's bare text
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

// ExitStatus is the exit status of a program that heddle ran in its place, which has already printed its messages.
type ExitStatus int

func (e ExitStatus) Error() string { return fmt.Sprintf("ended with %d", int(e)) }
