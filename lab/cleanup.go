package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long processes get between SIGTERM and SIGKILL.
const grace = 2 * time.Second

// namespaces lists the namespaces of an instance by name.
func (s State) namespaces() []string {
	var names []string
	for _, h := range s.World.Hosts {
		names = append(names, namespaceName(s.Name, h.Name))
	}
	return names
}

// endInside ends all processes in these namespaces, except spare and this one. They all belong to us or our user:
// nobody else can enter a namespace that we made.
func endInside(namespaces []string, spare int) error {
	inodes := map[uint64]bool{}
	for _, name := range namespaces {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(netnsDir, name), &st) == nil {
			inodes[st.Ino] = true
		}
	}
	if len(inodes) == 0 {
		return nil
	}
	deadline := time.Now().Add(grace)
	for signal := unix.SIGTERM; ; {
		left := signalInside(inodes, spare, signal)
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			if signal == unix.SIGKILL {
				return fmt.Errorf("%d processes do not end", left)
			}
			signal, deadline = unix.SIGKILL, time.Now().Add(grace)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// signalInside signals each process in the network namespaces with those inodes, and counts them.
func signalInside(inodes map[uint64]bool, spare int, signal unix.Signal) (found int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == spare || pid == os.Getpid() {
			continue
		}
		// The descriptor keeps the PID from being reused while the namespace is checked.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &st) == nil && inodes[st.Ino] {
			found++
			unix.PidfdSendSignal(fd, signal, nil, 0)
		}
		unix.Close(fd)
	}
	return found
}

// sweep removes everything that an instance made, even if its owner is gone.
func sweep(s State) error {
	var errs []error
	for _, name := range s.namespaces() {
		errs = append(errs, deleteNamespace(name))
	}
	errs = append(errs, removeDir(s.Name))
	return errors.Join(errs...)
}

// TakeDown removes a world by name. It asks a background owner to do it, and cleans up itself if the owner is gone. It
// refuses a world that a running program made for itself.
func TakeDown(name string) error {
	s, err := readState(name)
	if errors.Is(err, ErrNotUp) {
		if _, statErr := os.Stat(dir(name)); statErr != nil {
			return err
		}
	}
	if s.Name == "" {
		return takeDownUnknown(name)
	}
	if s.Owner.Alive() && s.Owner.PID != os.Getpid() {
		if !s.Background {
			return fmt.Errorf("world %s belongs to process %d, which is alive and takes it down itself", name, s.Owner.PID)
		}
		endOwner(s.Owner)
	}
	return errors.Join(endInside(s.namespaces(), s.Owner.PID), sweep(s))
}

// endOwner sends the owner SIGTERM, and SIGKILL later.
func endOwner(p Process) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if !p.Alive() {
		return
	}
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		unix.PidfdSendSignal(fd, signal, nil, 0)
		polls := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, _ := unix.Poll(polls, int(5*grace/time.Millisecond)); n > 0 {
			return
		}
	}
}

// takeDownUnknown removes a world whose state is lost: all namespaces with its name that no other world claims.
func takeDownUnknown(name string) error {
	orphans, err := orphanNamespaces()
	if err != nil {
		return err
	}
	var ours []string
	for _, o := range orphans {
		if strings.HasPrefix(o, prefix+name+"-") {
			ours = append(ours, o)
		}
	}
	return errors.Join(removeNamespaces(ours), removeDir(name))
}

// removeDir removes the state directory of an instance.
func removeDir(name string) error {
	mounts, err := filepath.Glob(filepath.Join(dir(name), "*", "bpf"))
	for _, at := range mounts {
		if e := unix.Unmount(at, unix.MNT_DETACH); e != nil && e != unix.EINVAL {
			err = errors.Join(err, &os.PathError{Op: "unmount", Path: at, Err: e})
		}
	}
	return errors.Join(err, os.RemoveAll(dir(name)))
}

func removeNamespaces(names []string) error {
	errs := []error{endInside(names, 0)}
	for _, name := range names {
		errs = append(errs, deleteNamespace(name))
	}
	return errors.Join(errs...)
}

// orphanNamespaces lists namespaces with our prefix that no known world claims.
func orphanNamespaces() ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	states, err := List()
	if err != nil {
		return nil, err
	}
	claimed := map[string]bool{}
	for _, s := range states {
		for _, name := range s.namespaces() {
			claimed[name] = true
		}
	}
	var orphans []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && !claimed[e.Name()] {
			orphans = append(orphans, e.Name())
		}
	}
	return orphans, nil
}

// TakeDownAll removes every background world and all that crashes left. It returns the names of those removed, and of
// worlds kept because a running program owns them.
func TakeDownAll() (removed, kept []string, err error) {
	states, err := List()
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, s := range states {
		if s.Owner.PID != 0 && s.Owner.Alive() && !s.Background {
			kept = append(kept, s.Name)
			continue
		}
		errs = append(errs, TakeDown(s.Name))
		removed = append(removed, s.Name)
	}
	orphans, err := orphanNamespaces()
	errs = append(errs, err, removeNamespaces(orphans))
	return append(removed, orphans...), kept, errors.Join(errs...)
}
