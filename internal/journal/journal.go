// Package journal keeps what was changed on this machine, so that it can be taken back, after a crash too: each change is
// on disk before it is made.
//
// Do not use it for changes that go with the process that made them, nor where two processes write: who opens a journal
// holds the session's name.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"

	"heddle/internal/atomicfile"
	"heddle/internal/errhint"
)

// Change is one thing done to this machine. Undo must work in another process than the one that applied it, from what
// JSON keeps of the change; it must work twice, and where Apply never ran.
type Change interface {
	Apply() error
	Undo() error
	// String says what Apply does, as a command or a short sentence.
	String() string
}

// Guard is a change that may keep packets in. After a crash it stays until the next start has one of its own, so that
// nothing leaves in between.
type Guard interface {
	Change
	Guards() bool
}

// Kinds are the changes that a journal may hold, by the name they have in its file; each makes an empty one.
type Kinds map[string]func() Change

// Format says what a journal holds, and how its room talks about it.
type Format struct {
	Kinds Kinds
	// ByHand says how to take all back where the file cannot be used.
	ByHand string
	// Hint says what helps against an error of a change, or "".
	Hint func(error) string
}

// Journal is the list of changes made so far.
type Journal struct {
	file    string
	format  Format
	changes []Change
}

// Open reads the journal that a crash left in a file, or gives an empty one. It fails with a [errhint.Error] where the file
// is not this user's alone, or holds what the format does not know.
func Open(file string, f Format) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	j := &Journal{file: file, format: f}
	data, err := readOwn(file)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err == nil {
		j.changes, err = Decode(data, f.Kinds)
	}
	if err != nil {
		return nil, &errhint.Error{What: "journal " + file, Why: "it cannot be used", Err: err,
			Hint: "undo by hand: " + f.ByHand + "; then remove the file"}
	}
	return j, nil
}

// Changes lists those that are not taken back, the oldest first.
func (j *Journal) Changes() []Change { return slices.Clone(j.changes) }

// Guards counts the guards that the journal begins with: one, or more after a crash while one replaced the other. They may
// be one thing on the machine, so a caller that keeps one must keep all of them.
func (j *Journal) Guards() (n int) {
	for _, c := range j.changes {
		if g, ok := c.(Guard); !ok || !g.Guards() {
			break
		}
		n++
	}
	return n
}

// Do writes the change down and then makes it.
func (j *Journal) Do(c Change) error {
	j.changes = append(j.changes, c)
	if err := j.save(j.changes); err != nil {
		j.changes = j.changes[:len(j.changes)-1]
		return err
	}
	if err := c.Apply(); err != nil {
		return &errhint.Error{What: c.String(), Why: "it did not work", Err: err, Hint: j.format.Hint(err)}
	}
	return nil
}

// Undo takes back all changes, or all but the guards, the last first, and removes the file where none is left. A change that
// resists stays in the file, and the others are still undone. It gives those that were taken back, in that order.
func (j *Journal) Undo(keepGuards bool) (undone []Change, err error) {
	var left []Change
	var failed []error
	keep := 0
	if keepGuards {
		keep = j.Guards()
	}
	for len(j.changes) > keep {
		last := len(j.changes) - 1
		c := j.changes[last]
		j.changes = j.changes[:last]
		if err := c.Undo(); err != nil {
			failed = append(failed, fmt.Errorf("undo %s: %w", c, err))
			left = append([]Change{c}, left...)
		} else {
			undone = append(undone, c)
		}
		if err := j.save(slices.Concat(j.changes, left)); err != nil {
			failed = append(failed, err)
		}
	}
	j.changes = slices.Concat(j.changes, left)
	return undone, errors.Join(failed...)
}

// save replaces the file in one step, so that a crash leaves the old list or the new one. An empty list is no file.
func (j *Journal) save(changes []Change) error {
	if len(changes) == 0 {
		if err := os.Remove(j.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := Encode(changes, j.format.Kinds)
	if err != nil {
		return err
	}
	return atomicfile.Write(j.file, data, 0o600)
}

// entry is a change as the file holds it.
type entry struct {
	Kind   string          `json:"kind"`
	Change json.RawMessage `json:"change"`
}

// Encode writes changes as a journal's file holds them. It panics where one is of no kind that is known.
func Encode(changes []Change, kinds Kinds) ([]byte, error) {
	var entries []entry
	for _, c := range changes {
		data, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{Kind: kinds.of(c), Change: data})
	}
	return json.MarshalIndent(entries, "", "  ")
}

// Decode reads what Encode wrote.
func Decode(data []byte, kinds Kinds) ([]Change, error) {
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

func (k Kinds) of(c Change) string {
	for name, make := range k {
		if reflect.TypeOf(make()) == reflect.TypeOf(c) {
			return name
		}
	}
	panic(fmt.Sprintf("journal: %T has no kind", c))
}

// Gone reports that what should be undone is not there.
func Gone(err error) bool {
	_, noLink := errors.AsType[netlink.LinkNotFoundError](err)
	return noLink || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENODEV)
}

// IgnoreGone returns nil if err means that what should be undone is not there, or else err.
func IgnoreGone(err error) error {
	if Gone(err) {
		return nil
	}
	return err
}
