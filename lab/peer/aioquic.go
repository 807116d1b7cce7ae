package peer

import (
	"context"
	"os/exec"
	"path/filepath"
)

// Aioquic gives the Python that has the pinned aioquic, for programs other than the server here. It installs it in the
// user's cache, once; it fails with [ErrMissing] where this machine has no Python.
func Aioquic(ctx context.Context, say func(string, ...any)) (string, error) {
	if _, err := exec.LookPath("python3"); err != nil {
		return "", missing("python3", "apt-get install python3 python3-venv")
	}
	dir, err := aioquic(ctx, say)
	return filepath.Join(dir, "bin", "python"), err
}
