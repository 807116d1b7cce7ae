package mptcp

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"heddle/internal/errhint"
	"heddle/internal/journal"
	"heddle/internal/sysctl"
	"heddle/path"
)

// JournalName is the name of the journal of net.mptcp.pm_type, in place of a session's: all sessions of a run directory
// share it, since each has it for a moment. JournalKind is between that name and ".json" in the name of the file.
const (
	JournalName = "mptcp"
	JournalKind = "pm"
)

func openJournal(dir string) (*journal.Journal, error) {
	return journal.Open(filepath.Join(dir, JournalName+"."+JournalKind+".json"), journal.Format{
		Kinds:  journal.Kinds{"sysctl": func() journal.Change { return &sysctl.Change{} }},
		ByHand: "sysctl -w net.mptcp.pm_type=0",
		Hint: func(error) string {
			return errhint.Rights("CAP_NET_ADMIN") + ", or use --backend stripe"
		},
	})
}

// borrow makes the next socket use the user-space path manager, which the kernel fixes when it creates a socket. With
// SetPathManager, it changes the sysctl until giveBack, which must be called and may be called more than once. Until then all
// other borrowers wait: one that restored the setting would take it from a socket that another is about to make.
func (o *Options) borrow(ctx context.Context) (giveBack func() error, err error) {
	before, err := sysctl.Get(managerFile)
	if err != nil {
		return nil, &path.Error{What: "mptcp", Why: "this kernel has no path manager in user space", Err: err, Hint: "it came with Linux 5.19; use --backend stripe"}
	}
	if !o.SetPathManager {
		if before == userSpace {
			return func() error { return nil }, nil
		}
		return nil, &path.Error{What: "mptcp", Why: "subflows are not added by programs: net.mptcp.pm_type is " + before,
			Hint: "`sysctl -w net.mptcp.pm_type=1`; --set-path-manager does it for the moment in which the socket is made"}
	}
	release, err := sysctl.Hold(ctx, managerFile)
	if err != nil {
		return nil, &path.Error{What: "mptcp", Why: "net.mptcp.pm_type cannot be set for a moment", Err: err,
			Hint: "`sysctl -w net.mptcp.pm_type=1`, and no --set-path-manager"}
	}
	j, err := change(o.RunDir)
	if err != nil {
		release()
		return nil, err
	}
	return sync.OnceValue(func() error {
		defer release()
		if _, err := j.Undo(false); err != nil {
			return &path.Error{What: "mptcp", Why: "cannot set net.mptcp.pm_type back", Err: err, Hint: "heddle down " + JournalName}
		}
		return nil
	}), nil
}

// change sets the sysctl. What a crash left is undone with it. The caller holds the setting.
func change(dir string) (*journal.Journal, error) {
	j, err := openJournal(dir)
	if err != nil {
		return nil, err
	}
	// What a crash left in another network namespace cannot be undone from here.
	if err := j.Forget(func(c journal.Change) bool { return c.(*sysctl.Change).Elsewhere() }); err != nil {
		return nil, err
	}
	c, err := sysctl.To(managerFile, userSpace)
	if err != nil || c == nil {
		return j, err
	}
	if c.Namespace, err = sysctl.Namespace(); err != nil {
		return nil, err
	}
	if err := j.Do(c); err != nil {
		_, undoErr := j.Undo(false)
		return nil, errors.Join(err, undoErr)
	}
	return j, nil
}

// Left returns a line if a crash of a dialling process left net.mptcp.pm_type changed.
func Left(dir string) (lines []string, err error) {
	j, release, err := left(dir)
	if err != nil || j == nil {
		return nil, err
	}
	defer release()
	for _, c := range j.Changes() {
		lines = append(lines, c.String())
	}
	return lines, nil
}

// Clean restores what a crash left, and returns a line for it. The setting has two values only, so a change by somebody else
// since then looks like the restored one.
func Clean(dir string) (lines []string, err error) {
	j, release, err := left(dir)
	if err != nil || j == nil {
		return nil, err
	}
	defer release()
	undone, err := j.Undo(false)
	for _, c := range undone {
		lines = append(lines, c.String())
	}
	return lines, err
}

// left opens the journal if there is one and no dialling process is about to undo it.
func left(dir string) (j *journal.Journal, release func(), err error) {
	if _, err := os.Lstat(filepath.Join(dir, JournalName+"."+JournalKind+".json")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	release, err = sysctl.Hold(context.Background(), managerFile)
	if errors.Is(err, fs.ErrNotExist) {
		release, err = func() {}, nil // the kernel has no such setting here
	}
	if err != nil {
		return nil, nil, err
	}
	if j, err = openJournal(dir); err != nil {
		release()
		return nil, nil, err
	}
	return j, release, nil
}
