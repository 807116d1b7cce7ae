package backend

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/journal"
)

// OpenJournal opens the journal of a session's changes to this machine, as a crash left it.
func OpenJournal(dir, session, backend string, kinds journal.Kinds) (*journal.Journal, error) {
	return journal.Open(filepath.Join(dir, session+"."+backend+".json"),
		journal.Format{Kinds: kinds, ByHand: "nft list tables, tc filter show, ip rule", Hint: hintFor})
}

// Clean undoes the changes that a crash of a session left, and returns a line for each. With keepGuard the guard stays for a
// session about to start, so that nothing leaves in between. The caller must hold the session's name.
func Clean(dir, session, backend string, kinds journal.Kinds, keepGuard bool) (lines []string, err error) {
	j, err := OpenJournal(dir, session, backend, kinds)
	if err != nil {
		return nil, err
	}
	undone, err := j.Undo(keepGuard)
	for _, c := range undone {
		lines = append(lines, c.String())
	}
	return lines, err
}

// Left returns a line for each change that a session made on this machine and that is not undone. If no such session runs, a
// crash left them.
func Left(dir, session, backend string, kinds journal.Kinds) (lines []string, err error) {
	j, err := OpenJournal(dir, session, backend, kinds)
	if err != nil {
		return nil, err
	}
	for _, c := range j.Changes() {
		lines = append(lines, c.String())
	}
	return lines, nil
}

// Begin undoes the changes that a crash of a session left, and makes the guard as the first change. It replaces a guard that
// the crash left in one step; left reports whether there was one. If that guard's server had another address, nothing leaves
// to that address either.
func Begin(j *journal.Journal, g *Guard) (left bool, err error) {
	guards := j.Changes()[:j.Guards()]
	for _, c := range guards {
		before := c.(*Guard)
		g.Forbid(append(before.Others, before.Server)...)
	}
	left = len(guards) > 0
	if _, err := j.Undo(true); err != nil {
		return left, err
	}
	return left, j.Do(g)
}

// End undoes all changes, the guard last. With keepGuard the guard stays and drops everything.
func End(j *journal.Journal, g *Guard, keepGuard bool) (err error) {
	if keepGuard {
		g.Exits = nil
		err = g.Apply()
	}
	_, undoErr := j.Undo(keepGuard)
	return errors.Join(err, undoErr)
}

// hintFor returns a hint for a change that the kernel refused.
func hintFor(err error) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return errhint.Rights("CAP_NET_ADMIN and CAP_BPF") + ", or use --backend relay, which needs neither"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.ENOENT):
		return "the kernel lacks this: `heddle doctor` says what there is; --backend relay needs none of it"
	}
	return ""
}
