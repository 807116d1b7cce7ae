//go:build !linux

package split

import (
	"context"
	"errors"
	"io"

	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/internal/errhint"
	"heddle/split"
)

// refused reports that this system refuses a backend, so that the next one is tried.
func refused(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

func openBelow(_ context.Context, name string, _ config.Split, _ split.Options, _ *runner.Runner, _ io.Writer) (*opened, error) {
	return nil, errhint.NeedsLinux("--backend "+name, "--backend relay works here")
}

// CleanBackends does nothing: no backend here changes the machine.
func CleanBackends(string, bool, ...string) ([]string, error) { return nil, nil }

// LeftByBackends finds nothing: no backend here changes the machine.
func LeftByBackends(string, ...string) ([]string, error) { return nil, nil }
