// Package sysctl changes kernel settings, and restores them.
//
// Settings below /proc/sys/net are those of the calling thread's network namespace.
package sysctl

import (
	"fmt"
	"os"
	"strings"

	"heddle/internal/journal"
)

const root = "/proc/sys/"

// Change sets one kernel setting to New, and its undo restores Old. It is a change for a [journal.Journal].
type Change struct {
	File string `json:"file"`
	New  string `json:"new"`
	Old  string `json:"old"`
}

// To returns the change that sets a kernel setting, or nil if it has that value already.
func To(file, value string) (*Change, error) {
	old, err := Get(file)
	if err != nil || old == value {
		return nil, err
	}
	return &Change{File: file, New: value, Old: old}, nil
}

// String says what is set.
func (c *Change) String() string {
	return fmt.Sprintf("sysctl %s=%s (it is %s)", Name(c.File), c.New, c.Old)
}

// Apply sets it.
func (c *Change) Apply() error { return Set(c.File, c.New) }

// Undo restores the old value. A setting that is gone with its device needs no undo.
func (c *Change) Undo() error { return journal.IgnoreGone(Set(c.File, c.Old)) }

// Name returns the name that sysctl(8) has for a file below /proc/sys.
func Name(file string) string { return strings.ReplaceAll(strings.TrimPrefix(file, root), "/", ".") }

// Get reads a setting.
func Get(file string) (string, error) {
	data, err := os.ReadFile(file)
	return strings.TrimSpace(string(data)), err
}

// Set writes a setting.
func Set(file, value string) error { return os.WriteFile(file, []byte(value), 0) }

// Strict and loose reverse path filtering (RFC 3704), as net.ipv4.conf.*.rp_filter numbers them.
const (
	strict = "1"
	loose  = "2"
)

// LooseFilter gives the change that lets answers in on a device that is not the best way back to their sender: reverse
// path filtering loose instead of strict. It is nil where that is so already. The kernel takes the greater one of the
// settings for the device and for all, so the device's alone has to change.
func LooseFilter(device string) (*Change, error) {
	all, err := Get(filterFile("all"))
	if err != nil {
		return nil, err
	}
	own, err := Get(filterFile(device))
	if err != nil || max(all, own) != strict {
		return nil, err
	}
	return &Change{File: filterFile(device), New: loose, Old: own}, nil
}

func filterFile(device string) string { return root + "net/ipv4/conf/" + device + "/rp_filter" }
