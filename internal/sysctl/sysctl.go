// Package sysctl changes and restores kernel settings; below /proc/sys/net, those of the calling thread's network namespace.
package sysctl

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"heddle/internal/journal"
)

const root = "/proc/sys/"

// Change is a [journal.Change] that sets one kernel setting to New; its undo restores Old.
type Change struct {
	File string `json:"file"`
	New  string `json:"new"`
	Old  string `json:"old"`
	// Namespace is the network namespace whose setting it is, as [Namespace] returns it. If it is empty, an undo in any
	// namespace undoes the change there.
	Namespace string `json:"namespace,omitempty"`
}

// ErrElsewhere means that a change was made in another network namespace than the calling thread's.
var ErrElsewhere = errors.New("it was made in another network namespace")

// Namespace identifies the network namespace of the calling thread, while that namespace exists.
func Namespace() (string, error) { return os.Readlink("/proc/thread-self/ns/net") }

// Elsewhere reports whether the change was made in another network namespace.
func (c *Change) Elsewhere() bool {
	here, err := Namespace()
	return c.Namespace != "" && (err != nil || c.Namespace != here)
}

// To returns the change that sets a kernel setting, or nil if it has the value already.
func To(file, value string) (*Change, error) {
	old, err := Get(file)
	if err != nil || old == value {
		return nil, err
	}
	return &Change{File: file, New: value, Old: old}, nil
}

func (c *Change) String() string {
	return fmt.Sprintf("sysctl %s=%s (it is %s)", Name(c.File), c.New, c.Old)
}

func (c *Change) Apply() error { return Set(c.File, c.New) }

// Undo is [Change.Restore] for a journal.
func (c *Change) Undo() error {
	_, err := c.Restore()
	return err
}

// Restore sets the old value. If somebody else changed the setting since, it stays as it is, and stays is its value. A
// setting that disappeared with its device needs no undo.
func (c *Change) Restore() (stays string, err error) {
	if c.Elsewhere() {
		return "", fmt.Errorf("%w, %s", ErrElsewhere, c.Namespace)
	}
	now, err := Get(c.File)
	switch {
	case err != nil:
		return "", journal.IgnoreGone(err)
	case now == c.Old:
		return "", nil
	case now != c.New:
		return now, nil
	}
	return "", journal.IgnoreGone(Set(c.File, c.Old))
}

// Stays says that [Change.Restore] left a value as it is.
func (c *Change) Stays(value string) string {
	return fmt.Sprintf("sysctl %s=%s (Heddle set %s, and somebody changed it since; it was %s)", Name(c.File), value, c.New, c.Old)
}

// Name returns the sysctl(8) name of a file below /proc/sys.
func Name(file string) string { return strings.ReplaceAll(strings.TrimPrefix(file, root), "/", ".") }

func Get(file string) (string, error) {
	data, err := os.ReadFile(file)
	return strings.TrimSpace(string(data)), err
}

func Set(file, value string) error { return os.WriteFile(file, []byte(value), 0) }

// Values of net.ipv4.conf.*.rp_filter: reverse path filtering (RFC 3704).
const (
	strict = "1"
	loose  = "2"
)

// LooseFilter returns the change to loose reverse path filtering, so that a device accepts answers although it is not the
// best route back. It returns nil if the filter is not strict. The kernel uses the maximum of the settings for the device
// and for all devices, so changing the device's setting is enough.
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
