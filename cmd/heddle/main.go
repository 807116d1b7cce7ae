// Command heddle decides what each network gets to see of you.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"heddle/internal/errhint"
	"heddle/lab"
	"heddle/path"
)

// Exit codes, as documented in heddle(1).
const (
	exitOK      = 0
	exitFailure = 1 // it was tried and did not work
	exitUsage   = 2 // the command line or a file is wrong; nothing was tried
)

// usageError marks a mistake in the command line or in a file.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func main() {
	lab.MaybeEnter()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop() // a second signal ends the process at once
	path.Settle()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	if err.Error() == context.Canceled.Error() { // as Go has it
		err = errors.New("interrupted")
	}
	printError(stderr, err)
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}

// printError prints what and why on one line, and each hint on its own.
func printError(w io.Writer, err error) {
	fmt.Fprintln(w, "heddle:", err)
	if hint := errhint.Of(err); hint != "" {
		fmt.Fprintln(w, "hint:", hint)
	}
}
