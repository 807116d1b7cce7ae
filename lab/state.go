package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/atomicfile"
	"heddle/path"
)

// stateDir holds a directory for each world that is up.
const stateDir = "/run/heddle/lab"

// unclaimed is the prefix of a state directory that is being written.
const unclaimed = "."

// State is what /run/heddle/lab/NAME/state.json records about a world that is up.
type State struct {
	Name  string    `json:"name"`
	World World     `json:"world"`
	Since time.Time `json:"since"`
	// Owner is the process that runs the emulated links; the world ends with it.
	Owner      Process `json:"owner"`
	Background bool    `json:"background"` // Owner was started by `heddle lab up` and only runs the world
	Ready      bool    `json:"ready"`      // the world is complete
}

// Process identifies a process even if its PID is reused.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot: field 22 of /proc/PID/stat, proc(5)
}

func thisProcess() (Process, error) {
	start, err := startTime(os.Getpid())
	return Process{os.Getpid(), start}, err
}

// Alive reports whether the process still runs.
func (p Process) Alive() bool {
	start, err := startTime(p.PID)
	return err == nil && start == p.Start
}

func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may contain anything; split after the last ')'.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	if fields[0][0] == 'Z' {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

// namespaceName is the name of a host's namespace under /run/netns.
func namespaceName(instance, host string) string { return prefix + instance + "-" + host }

// dir is the state directory of an instance; hostDir that of one host in it.
func dir(instance string) string           { return filepath.Join(stateDir, instance) }
func hostDir(instance, host string) string { return filepath.Join(dir(instance), host) }

// claim writes the state into a new directory and renames it, which claims the name atomically.
func (s State) claim() error {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(stateDir, unclaimed)
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := s.writeTo(fresh); err != nil {
		return err
	}
	err = unix.Rename(fresh, dir(s.Name))
	if err != unix.EEXIST && err != unix.ENOTEMPTY {
		return err
	}
	return &path.Error{What: "world " + s.Name, Why: "a world of that name is up, or was left by a crash",
		Hint: "heddle lab down " + s.Name}
}

func (s State) write() error { return s.writeTo(dir(s.Name)) }

func (s State) writeTo(dir string) error { return writeJSON(filepath.Join(dir, "state.json"), s) }

// writeJSON replaces the file atomically.
func writeJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(file, append(data, '\n'), 0o600)
}

// ErrNotUp says that no world of that name is up.
var ErrNotUp = errors.New("it is not up")

func readState(name string) (State, error) {
	var s State
	data, err := os.ReadFile(filepath.Join(dir(name), "state.json"))
	if os.IsNotExist(err) {
		return s, &path.Error{What: "world " + name, Hint: "heddle lab list; heddle lab up WORLD", Err: ErrNotUp}
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, &path.Error{What: "world " + name, Why: "its state file cannot be read", Hint: "heddle lab down " + name, Err: err}
	}
	return s, nil
}

// List returns the worlds that are up or that a crash left, by name. Without a valid state file, a State has only its name.
func List() ([]State, error) {
	entries, err := os.ReadDir(stateDir)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var all []State
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unclaimed) {
			continue
		}
		s, err := readState(e.Name())
		if err != nil {
			s = State{Name: e.Name()}
		}
		all = append(all, s)
	}
	return all, nil
}
