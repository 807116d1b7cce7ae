// Package atomicfile replaces whole files: a reader, also after a crash, finds either the old or the new content.
package atomicfile

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces a file in an existing directory. The umask does not affect the permissions.
func Write(file string, data []byte, perm fs.FileMode) error {
	return WriteFunc(file, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// WritePrivate replaces a file that only its owner may read. It creates missing directories.
func WritePrivate(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return Write(file, data, 0o600)
}

// WriteJSON is [WritePrivate] with the indented JSON of v.
func WriteJSON(file string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return WritePrivate(file, append(text, '\n'))
}

// WriteFunc is [Write] with the content that write produces. If write fails, the old file stays.
func WriteFunc(file string, perm fs.FileMode, write func(io.Writer) error) error {
	f, err := newPending(file, perm)
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if err := write(f); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// CreatePrivate is [WritePrivate] for a new file. If the file exists, it fails with [fs.ErrExist].
func CreatePrivate(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := newPending(file, 0o600)
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Link(f.Name(), file) // unlike a rename, a link fails if file exists
}
