package tunnel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"heddle/path"
)

// change is one thing done to this machine. Undo must work in another process than the one that applied it, from
// what JSON keeps of the change; it must work twice, and where Apply never ran.
type change interface {
	Apply() error
	Undo() error
	// String says what Apply does, as a command or a short sentence.
	String() string
}

// passing is a change that is gone once the process that made it is, so that nothing of it is left to undo.
type passing interface{ passes() }

func (*deviceChange) passes() {}
func (*address) passes()      {}
func (*linkUp) passes()       {}
func (*route) passes()        {}

// lasting lists what undoing will take back, a line each.
func lasting(changes []change) []string {
	var lines []string
	for _, c := range changes {
		_, gone := c.(passing)
		if h, ok := c.(*hooks); ok && !h.AtEnd {
			gone = true
		}
		if line := c.String(); !gone && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// kinds of change by the name they have in a journal.
var kinds = map[string]func() change{
	"firewall":   func() change { return &firewall{} },
	"device":     func() change { return &deviceChange{} },
	"address":    func() change { return &address{} },
	"link-up":    func() change { return &linkUp{} },
	"route":      func() change { return &route{} },
	"rule":       func() change { return &rule{} },
	"sysctl":     func() change { return &sysctl{} },
	"resolvconf": func() change { return &resolvconf{} },
	"resolvectl": func() change { return &resolvectl{} },
	"resolver":   func() change { return &resolverFile{} },
	"hooks":      func() change { return &hooks{} },
}

func kindOf(c change) string {
	for name, make := range kinds {
		if fmt.Sprintf("%T", make()) == fmt.Sprintf("%T", c) {
			return name
		}
	}
	panic(fmt.Sprintf("tunnel: %T has no kind", c))
}

// entry is a change as the journal's file holds it.
type entry struct {
	Kind   string          `json:"kind"`
	Change json.RawMessage `json:"change"`
}

// journal is the list of changes made so far, on disk before each is made, so that another process can undo them
// after a crash. Who uses it holds the name's lock (package control), so that there is one writer.
type journal struct {
	file    string
	changes []change
}

func journalFile(dir, name string) string { return filepath.Join(dir, name+".journal.json") }

// openJournal reads the journal that a crash left, or gives an empty one.
func openJournal(dir, name string) (*journal, error) {
	j := &journal{file: journalFile(dir, name)}
	data, err := readOwn(j.file)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err == nil {
		j.changes, err = decodeChanges(data)
	}
	if err != nil {
		return nil, &path.Error{What: "journal " + j.file, Why: "it cannot be used", Err: err,
			Hint: fmt.Sprintf("undo by hand: nft delete table inet %s; see ip rule; then remove the file", tableName(name))}
	}
	return j, nil
}

func decodeChanges(data []byte) ([]change, error) {
	var entries []entry
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, err
	}
	var changes []change
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

// readOwn reads a file that must be ours alone: a journal holds commands that are run with our rights.
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

// do writes the change down and then makes it.
func (j *journal) do(c change) error {
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

// undo takes back all changes but the first keep, the last first, and removes the file where none is left. A change
// that resists stays in the file, and the others are still undone.
func (j *journal) undo(keep int) error {
	var left []change
	var failed []error
	for len(j.changes) > keep {
		last := len(j.changes) - 1
		c := j.changes[last]
		j.changes = j.changes[:last]
		if err := c.Undo(); err != nil {
			failed = append(failed, fmt.Errorf("undo %s: %w", c, err))
			left = append([]change{c}, left...)
		}
		if err := (&journal{file: j.file, changes: slices.Concat(j.changes, left)}).save(); err != nil {
			failed = append(failed, err)
		}
	}
	j.changes = slices.Concat(j.changes, left)
	return errors.Join(failed...)
}

// save replaces the file in one step, so that a crash leaves the old list or the new one. An empty list is no file.
func (j *journal) save() error {
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
		entries = append(entries, entry{Kind: kindOf(c), Change: data})
	}
	data, err := json.MarshalIndent(entries, "", "  ")
	if err != nil {
		return err
	}
	return writeFileAtomic(j.file, data)
}

func writeFileAtomic(file string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	// The directory may be on a disk, and what the journal undoes may be there too (resolv.conf): write through.
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// hintFor says what usually helps against a refusal of the kernel.
func hintFor(err error) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "run as root, or use --socks for a tunnel that needs no rights"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT):
		return "the kernel lacks this: `heddle doctor` says what there is; --socks needs less"
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.EBUSY):
		return "something of that name is there already: `ip link` shows devices, `ip rule` rules"
	}
	return ""
}
