// Package leftover finds and takes back the kernel settings that a crash of an overlay node, or of a stream by MPTCP, left
// changed. Sessions that split have guards, which package split cleans up.
package leftover

import (
	"errors"

	"heddle/cmd/heddle/internal/control"
)

// Kinds are the kinds of journals, each a file NAME.KIND.json in the run directory.
func Kinds() (kinds []string) {
	for _, j := range journals {
		kinds = append(kinds, j.kind)
	}
	return kinds
}

// journal is one kind of journals.
type journal struct {
	kind  string
	left  func(dir, name string) (lines []string, err error)
	clean func(dir, name string) (undone, stays []string, err error)
}

// Left returns a line for each setting that the session called name changed and did not restore.
func Left(name string) (lines []string, err error) {
	for _, j := range journals {
		more, failed := j.left(control.Dir(), name)
		lines, err = append(lines, more...), errors.Join(err, failed)
	}
	return lines, err
}

// Clean restores what a crash of the session called name left, and removes what is only safe to remove then. undone has a
// line for each change, and stays one for each setting that somebody changed since. The caller must hold the name.
func Clean(name string) (undone, stays []string, err error) {
	for _, j := range journals {
		more, kept, failed := j.clean(control.Dir(), name)
		undone, stays, err = append(undone, more...), append(stays, kept...), errors.Join(err, failed)
	}
	return undone, stays, err
}
