package peer

import (
	"context"
	"errors"
	"os/exec"

	"heddle/internal/program"
	"heddle/lab"
	"heddle/path"
)

// ErrMissing says that a peer's program is not on this machine.
var ErrMissing = errors.New("the program is not on this machine")

// Process is a program that runs inside a host, or on this machine itself.
type Process = program.Process

// Start starts a program inside a host, by path or by name in PATH.
func Start(ctx context.Context, host *lab.Host, name string, args ...string) (*Process, error) {
	return start(ctx, host.Command, name+" on "+host.Name(), name, args)
}

// StartHere starts a program on this machine itself.
func StartHere(ctx context.Context, name string, args ...string) (*Process, error) {
	return start(ctx, exec.CommandContext, name, name, args)
}

func start(ctx context.Context, prepare program.Prepare, what, name string, args []string) (*Process, error) {
	if err := installed(name); err != nil {
		return nil, err
	}
	return program.Start(ctx, prepare, what, name, args...)
}

// installed returns nil, or an error that wraps [ErrMissing].
func installed(name string) error {
	if _, err := exec.LookPath(name); err != nil {
		return missing(name, "apt-get install "+name)
	}
	return nil
}

func missing(name, hint string) error {
	return &path.Error{What: name, Hint: hint, Err: ErrMissing}
}
