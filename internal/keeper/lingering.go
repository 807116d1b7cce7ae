package keeper

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Lingering is a keeper whose process ended.
type Lingering struct {
	PID     int
	Sockets int // that it still holds
}

// All lists the lingering keepers in this network namespace that this user may look at.
func All() (all []Lingering) {
	own, _ := os.Readlink("/proc/thread-self/ns/net")
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, _ := os.ReadFile(dir + "/cmdline")
		name, _, _ := bytes.Cut(line, []byte{0})
		in, err := os.Readlink(dir + "/ns/net")
		if string(name) != processName || err != nil || in != own || hasParent(dir) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		all = append(all, Lingering{pid, heldBy(dir)})
	}
	return all
}

// hasParent reports whether the process that started a keeper still runs: it is the same program.
func hasParent(dir string) bool {
	status, err := os.Open(dir + "/status")
	if err != nil {
		return true // it ended
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if parent, ok := strings.CutPrefix(lines.Text(), "PPid:"); ok {
			above, err := os.Stat("/proc/" + strings.TrimSpace(parent) + "/exe")
			self, selfErr := os.Stat(dir + "/exe")
			return err == nil && selfErr == nil && os.SameFile(above, self)
		}
	}
	return false
}

// heldBy counts the sockets of a keeper, less the one from its parent.
func heldBy(dir string) (n int) {
	open, _ := os.ReadDir(dir + "/fd")
	for _, fd := range open {
		target, _ := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
		if number, err := strconv.Atoi(fd.Name()); err == nil && number > fromParent && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}
