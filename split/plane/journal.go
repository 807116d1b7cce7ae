package plane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"

	"golang.org/x/sys/unix"

	"heddle/path"
)

// Change is one thing done to this machine. Undo must work in another process than the one that applied it, from what
// JSON keeps of the change; it must work twice, and where Apply never ran.
type Change interface {
	Apply() error
	Undo() error
	// String says what Apply does, in a short sentence.
	String() string
}

// Kinds are the changes that a journal may hold, by the name they have in its file; each makes an empty one.
type Kinds map[string]func() Change

// Journal is the list of changes made so far, on disk before each is made. Who uses it holds the session's name, so
// that there is one writer.
type Journal struct {
	file    string
	kinds   Kinds
	changes []Change
}

type entry struct {
	Kind   string          `json:"kind"`
	Change json.RawMessage `json:"change"`
}

// OpenJournal reads the journal of a session that a crash left, or gives an empty one. The plane is part of its name.
func OpenJournal(dir, session, plane string, kinds Kinds) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	j := &Journal{file: filepath.Join(dir, session+"."+plane+".json"), kinds: kinds}
	data, err := readOwn(j.file)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err == nil {
		j.changes, err = decodeChanges(data, kinds)
	}
	if err != nil {
		return nil, &path.Error{What: "journal " + j.file, Why: "it cannot be used", Err: err,
			Hint: "undo by hand: nft list tables, tc filter show, ip rule; then remove the file"}
	}
	return j, nil
}

func decodeChanges(data []byte, kinds Kinds) ([]Change, error) {
	var entries []entry
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, err
	}
	var changes []Change
	for _, e := range entries {
		make, known := kinds[e.Kind]
		if !known {
			return nil, fmt.Errorf("it holds a change of unknown kind %q", e.Kind)
		}
		c := make()
		if err := json.Unmarshal(e.Change, c); err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// readOwn reads a file that must be ours alone: what it says is done with our rights.
func readOwn(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case int(owner) != os.Geteuid():
		return nil, fmt.Errorf("user %d owns it", owner)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("others have rights on it (mode %04o)", info.Mode().Perm())
	case info.Size() > 1<<20:
		return nil, errors.New("it is too large")
	}
	data := make([]byte, info.Size())
	_, err = f.ReadAt(data, 0)
	return data, err
}

// Do writes the change down and then makes it.
func (j *Journal) Do(c Change) error {
	j.changes = append(j.changes, c)
	if err := j.save(); err != nil {
		j.changes = j.changes[:len(j.changes)-1]
		return err
	}
	if err := c.Apply(); err != nil {
		return &path.Error{What: c.String(), Why: "it did not work", Err: err, Hint: hintFor(err)}
	}
	return nil
}

// Undo takes back all changes, the last first, and removes the file where none is left. A change that resists stays in
// the file, and the others are still undone. It tells what was taken back.
func (j *Journal) Undo() (undone []string, err error) {
	var left []Change
	var failed []error
	for len(j.changes) > 0 {
		last := len(j.changes) - 1
		c := j.changes[last]
		j.changes = j.changes[:last]
		if err := c.Undo(); err != nil {
			failed = append(failed, fmt.Errorf("undo %s: %w", c, err))
			left = append([]Change{c}, left...)
		} else {
			undone = append(undone, c.String())
		}
	}
	j.changes = left
	return undone, errors.Join(append(failed, j.save())...)
}

// save replaces the file in one step, so that a crash leaves the old list or the new one. An empty list is no file.
func (j *Journal) save() error {
	if len(j.changes) == 0 {
		if err := os.Remove(j.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	var entries []entry
	for _, c := range j.changes {
		data, err := json.Marshal(c)
		if err != nil {
			return err
		}
		entries = append(entries, entry{Kind: j.kinds.of(c), Change: data})
	}
	data, err := json.MarshalIndent(entries, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(j.file), filepath.Base(j.file)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), j.file)
}

func (k Kinds) of(c Change) string {
	for name, make := range k {
		if reflect.TypeOf(make()) == reflect.TypeOf(c) {
			return name
		}
	}
	panic(fmt.Sprintf("plane: %T has no kind", c))
}

// Clean takes back what a crash of a session left, and tells what that was. Who calls it holds the session's name.
func Clean(dir, session, plane string, kinds Kinds) ([]string, error) {
	j, err := OpenJournal(dir, session, plane, kinds)
	if err != nil {
		return nil, err
	}
	return j.Undo()
}

// hintFor says what usually helps against a refusal of the kernel.
func hintFor(err error) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "run as root or with CAP_NET_ADMIN and CAP_BPF, or use --plane relay, which needs neither"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.ENOENT):
		return "the kernel lacks this: `heddle doctor` says what there is; --plane relay needs none of it"
	}
	return ""
}
