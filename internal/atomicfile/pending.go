//go:build !windows

package atomicfile

import (
	"io/fs"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// newPending creates the temporary file in the same directory, as a rename cannot cross file systems.
func newPending(file string, perm fs.FileMode) (*renameio.PendingFile, error) {
	return renameio.NewPendingFile(file, renameio.WithTempDir(filepath.Dir(file)), renameio.WithStaticPermissions(perm))
}
