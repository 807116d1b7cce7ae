//go:build !windows

package atomicfile

import (
	"io/fs"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// newPending makes the temporary file beside the real one: another directory may be on another file system.
func newPending(file string, perm fs.FileMode) (*renameio.PendingFile, error) {
	return renameio.NewPendingFile(file, renameio.WithTempDir(filepath.Dir(file)), renameio.WithStaticPermissions(perm))
}
