// Package atomicfile replaces files as a whole: a reader, or a program that starts after a crash, finds either the old content
// or the new one.
package atomicfile

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces file, whose directory must exist. The file gets exactly these permissions, whatever the umask.
func Write(file string, data []byte, perm fs.FileMode) error {
	return WriteFunc(file, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// WritePrivate replaces a file that only its owner may read. It makes missing directories.
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

// WriteFunc is [Write] with the content that write writes. If write fails, the old file stays.
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

// CreatePrivate is [WritePrivate] for a new file. It fails with [fs.ErrExist] if the file exists or another process just made it.
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
	return os.Link(f.Name(), file) // fails where file exists; a rename would replace it
}
