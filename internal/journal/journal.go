// Package journal records the changes made to this machine, so that they can be undone, also after a crash. It writes each
// change to disk before making it. Do not use it for changes that end with the process. Two processes must not share a
// journal; the lock on the session's name prevents that.
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

// Change is one change of this machine. Undo must work in another process, with only the fields that JSON keeps. It must
// also work a second time, and if Apply never ran.
type Change interface {
	Apply() error
	Undo() error
	String() string // describes Apply as a command or a short sentence
}

// Guard is a change that may block packets. After a crash it stays until the next run has its own, so that nothing leaves.
type Guard interface {
	Change
	Guards() bool
}

// Kinds maps the name of each kind of change in the file to a function that returns an empty one.
type Kinds map[string]func() Change

// Format describes the contents of a journal and the messages about it.
type Format struct {
	Kinds  Kinds
	ByHand string             // how to undo everything if the file is unusable
	Hint   func(error) string // advice on an error of a change, or ""
}

// Journal is the list of changes that are not undone.
type Journal struct {
	file    string
	format  Format
	changes []Change
}

// Open reads the journal that a crash left, or returns an empty one. It fails with a [errhint.Error] if the file is not
// private to this user, or contains something unknown.
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

// Changes returns the changes that are not undone, the oldest first.
func (j *Journal) Changes() []Change { return slices.Clone(j.changes) }

// Guards returns the number of guards at the start of the journal. A crash during a replacement may leave several, which may
// be one object of the kernel, so a caller must keep all or none.
func (j *Journal) Guards() (n int) {
	for _, c := range j.changes {
		if g, ok := c.(Guard); !ok || !g.Guards() {
			break
		}
		n++
	}
	return n
}

// Note records a change that an earlier process made.
func (j *Journal) Note(c Change) error {
	j.changes = append(j.changes, c)
	err := j.save(j.changes)
	if err != nil {
		j.changes = j.changes[:len(j.changes)-1]
	}
	return err
}

// Forget drops the changes that are no longer to be undone.
func (j *Journal) Forget(which func(Change) bool) error {
	left := slices.DeleteFunc(slices.Clone(j.changes), which)
	if len(left) == len(j.changes) {
		return nil
	}
	j.changes = left
	return j.save(left)
}

// Do records the change and then makes it.
func (j *Journal) Do(c Change) error {
	if err := j.Note(c); err != nil {
		return err
	}
	if err := c.Apply(); err != nil {
		return &errhint.Error{What: c.String(), Why: "it did not work", Err: err, Hint: j.format.Hint(err)}
	}
	return nil
}

// Undo reverts all changes, the last first, and returns those it reverted. keepGuards keeps the guards. A change that fails
// to revert stays in the file, and the others are still reverted.
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

// save replaces the file atomically, and removes it if the list is empty.
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

type entry struct {
	Kind   string          `json:"kind"`
	Change json.RawMessage `json:"change"`
}

// Encode returns changes in the format of a journal's file. It panics on an unknown kind.
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

// Decode parses the output of [Encode].
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

// Gone reports whether err means that the object to remove does not exist.
func Gone(err error) bool {
	_, noLink := errors.AsType[netlink.LinkNotFoundError](err)
	return noLink || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENODEV)
}

// IgnoreGone returns nil if [Gone] reports true, or else err.
func IgnoreGone(err error) error {
	if Gone(err) {
		return nil
	}
	return err
}
