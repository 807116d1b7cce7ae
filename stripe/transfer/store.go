package transfer

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"heddle/internal/filelock"
)

// store is the directory for received files. It never leaves the directory, not even by links.
type store struct {
	root      *os.Root
	parts     *Parts
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

// is reports whether a file has the size and the hash that the sender showed.
func (s *store) is(name string, h held) bool {
	file, err := s.root.OpenFile(name, os.O_RDONLY|plainFile, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	return err == nil && size == h.Bytes && digest(sum.Sum(nil)) == h.sum
}

// open opens and locks a part. It returns nil if there is none and create is not set, or a [refusal] if the part is locked.
func (s *store) open(name string, create bool) (p *part, err error) {
	var file *os.File
	if create {
		file, err = s.parts.create(s.root, name)
	} else {
		file, err = s.root.OpenFile(name+PartSuffix, os.O_RDWR|plainFile, 0)
	}
	p = &part{store: s, name: name, file: file, sum: sha256.New(), leave: func() {}}
	refuse := func(why string) (*part, error) {
		file.Close() // may be nil
		s.parts.tidy(s.root, name, false)
		return nil, refusal(why)
	}
	switch refused, is := errors.AsType[refusal](err); {
	case is:
		return refuse(string(refused))
	case errors.Is(err, fs.ErrNotExist) && !create:
		return nil, nil
	case err != nil:
		return refuse("its part cannot be opened: " + cause(err))
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return refuse("its part is no file")
	}
	if err := filelock.Try(file); err != nil {
		return refuse("another transfer receives it at the moment")
	}
	if p.size, err = io.Copy(p.sum, file); err != nil {
		return refuse("its part cannot be read: " + cause(err))
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

// close keeps the part unless it is empty. It then removes the directories that were made for the part.
func (p *part) close() {
	if p.size == 0 && !p.named {
		_ = p.store.root.Remove(p.name + PartSuffix)
	}
	p.file.Close()
	p.store.parts.tidy(p.store.root, p.name, p.named)
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
