package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// pending has the methods of renameio.PendingFile, which does not support Windows. os.Rename replaces files there too.
type pending struct {
	*os.File
	path string
}

// newPending ignores the permissions: Windows has no permission bits.
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
	_ = p.Close() // Windows cannot remove an open file
	return os.Remove(p.Name())
}
