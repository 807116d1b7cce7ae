package control

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"heddle/internal/filelock"
)

// RunningError says that a heddle with this name already runs.
type RunningError struct {
	Name string
	PID  int // 0 if unknown
}

func (e *RunningError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is already running", e.Name)
	}
	return fmt.Sprintf("%s is already running (pid %d)", e.Name, e.PID)
}

// HintText says what to do.
func (e *RunningError) HintText() string {
	return fmt.Sprintf("see it with `heddle status %[1]s`, stop it with `heddle down %[1]s`, or give this one another name, where the command takes --name", e.Name)
}

// lock takes the lock file and writes this process's id into it.
func lock(name, file string) (*os.File, error) {
	for {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR|NoFollow, 0o600)
		if err != nil {
			return nil, err
		}
		err = hold(f)
		if errors.Is(err, filelock.ErrHeld) {
			defer f.Close()
			return nil, &RunningError{Name: name, PID: readPID(f)}
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		// The previous holder may have removed the file after we opened it: then our lock is on a file that nobody sees.
		if !sameFile(f, file) {
			f.Close()
			continue
		}
		if err := writePID(f); err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
}

// locked reports whether a live process holds the lock file.
func locked(file string) bool {
	f, err := os.OpenFile(file, os.O_RDWR|NoFollow, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return held(f)
}

func sameFile(f *os.File, name string) bool {
	ours, err := f.Stat()
	if err != nil {
		return false
	}
	theirs, err := os.Lstat(name)
	return err == nil && os.SameFile(ours, theirs)
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func readPID(f *os.File) int {
	text := make([]byte, 16)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
