package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// pending has the methods of renameio.PendingFile, which is not there for Windows. os.Rename replaces a file there too.
type pending struct {
	*os.File
	path string
}

// newPending leaves the permissions to the directory: Windows has no such bits.
func newPending(file string, _ fs.FileMode) (*pending, error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file))
	return &pending{f, file}, err
}

func (p *pending) CloseAtomicallyReplace() error {
	if err := errors.Join(p.Sync(), p.Close()); err != nil {
		return err
	}
	return os.Rename(p.Name(), p.path)
}

func (p *pending) Cleanup() error {
	_ = p.Close() // an open file cannot be removed
	return os.Remove(p.Name())
}
