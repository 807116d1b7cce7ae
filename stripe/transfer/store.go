package transfer

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"heddle/internal/filelock"
)

// store is the directory for received files. It never leaves the directory, not even by links.
type store struct {
	root      *os.Root
	overwrite bool
	hidden    bool
}

// part is NAME.part, locked against other transfers.
type part struct {
	store *store
	name  string
	file  *os.File
	size  int64     // bytes
	sum   hash.Hash // of its content
	named bool      // it has its final name
	leave func()    // gives the file back to other transfers
}

// refusal is a reason not to take a file. The sender sees it.
type refusal string

func (r refusal) Error() string { return string(r) }

// existing returns the file that already has the name, or nil.
func (s *store) existing(name string) (fs.FileInfo, error) {
	info, err := s.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, refusal("its place cannot be looked at: " + cause(err))
	case !info.Mode().IsRegular():
		return nil, refusal("something else that has its name is there")
	}
	return info, nil
}

func (s *store) digest(name string) (d digest, size int64, err error) {
	file, err := s.root.OpenFile(name, os.O_RDONLY|plainFile, 0)
	if err != nil {
		return d, 0, err
	}
	defer file.Close()
	sum := sha256.New()
	size, err = io.Copy(sum, file)
	return digest(sum.Sum(nil)), size, err
}

// open opens and locks a part. It returns nil if there is none and create is not set, or a [refusal] if the part is locked.
func (s *store) open(name string, create bool) (*part, error) {
	flags := os.O_RDWR | plainFile
	if create {
		flags |= os.O_CREATE
		if dir := path.Dir(name); dir != "." {
			if err := s.root.MkdirAll(dir, 0o777); err != nil {
				return nil, refusal("its directory cannot be made: " + cause(err))
			}
		}
	}
	file, err := s.root.OpenFile(name+PartSuffix, flags, 0o666)
	if errors.Is(err, fs.ErrNotExist) && !create {
		return nil, nil
	} else if err != nil {
		return nil, refusal("its part cannot be opened: " + cause(err))
	}
	p := &part{store: s, name: name, file: file, sum: sha256.New(), leave: func() {}}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, refusal("its part is no file")
	}
	if err := filelock.Try(file); err != nil {
		file.Close()
		return nil, refusal("another transfer receives it at the moment")
	}
	if p.size, err = io.Copy(p.sum, file); err != nil {
		file.Close()
		return nil, refusal("its part cannot be read: " + cause(err))
	}
	return p, nil
}

func (p *part) restart() error {
	if err := p.file.Truncate(0); err != nil {
		return err
	}
	p.size = 0
	p.sum.Reset()
	_, err := p.file.Seek(0, io.SeekStart)
	return err
}

func (p *part) write(data []byte) error {
	n, err := p.file.Write(data)
	p.sum.Write(data[:n])
	p.size += int64(n)
	return err
}

func (p *part) digest() digest { return digest(p.sum.Sum(nil)) }

// close keeps the part unless it is empty.
func (p *part) close() {
	if p.size == 0 && !p.named {
		_ = p.store.root.Remove(p.name + PartSuffix)
	}
	p.file.Close()
	p.leave()
}

// finish syncs the part and gives it its name. If that name exists by now, the part stays unless overwriting is permitted.
func (p *part) finish(modified time.Time, executable bool) (err error) {
	if executable {
		info, err := p.file.Stat()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm()
		if err := p.file.Chmod(mode | mode&0o444>>2); err != nil {
			return err
		}
	}
	if err := p.file.Sync(); err != nil {
		return err
	}
	root, from := p.store.root, p.name+PartSuffix
	if !modified.IsZero() {
		if err := root.Chtimes(from, modified, modified); err != nil {
			return err
		}
	}
	defer func() { p.named = err == nil }()
	if p.store.overwrite {
		return root.Rename(from, p.name)
	}
	// Unlike a rename, a link fails if the name exists.
	switch err := root.Link(from, p.name); {
	case errors.Is(err, fs.ErrExist):
		return refusal("a file of its name came meanwhile; the part is kept")
	case errors.Is(err, syscall.EPERM), errors.Is(err, errors.ErrUnsupported): // a file system without hard links
		if _, err := root.Lstat(p.name); !errors.Is(err, fs.ErrNotExist) {
			return refusal("a file of its name came meanwhile; the part is kept")
		}
		return root.Rename(from, p.name)
	case err != nil:
		return err
	}
	return root.Remove(from)
}

// room returns the bytes free for this user.
func (s *store) room() (int64, error) {
	dir, err := s.root.Open(".")
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	return roomOf(dir)
}

// nameless strips the name of the file, which is known.
func nameless(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func cause(err error) string { return nameless(err).Error() }
