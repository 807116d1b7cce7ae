package plane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Gone reports that what should be undone is not there.
func Gone(err error) bool {
	_, noLink := errors.AsType[netlink.LinkNotFoundError](err)
	return noLink || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV)
}

// Sysctl sets one kernel setting, and back to Old.
type Sysctl struct {
	File string `json:"file"`
	New  string `json:"new"`
	Old  string `json:"old"`
}

// String says what is set.
func (c *Sysctl) String() string {
	name := strings.ReplaceAll(strings.TrimPrefix(c.File, "/proc/sys/"), "/", ".")
	return fmt.Sprintf("sysctl %s=%s (it is %s)", name, c.New, c.Old)
}

// Apply sets it.
func (c *Sysctl) Apply() error { return os.WriteFile(c.File, []byte(c.New), 0) }

// Undo sets it back.
func (c *Sysctl) Undo() error {
	if err := os.WriteFile(c.File, []byte(c.Old), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// strict and loose reverse path filtering (RFC 3704), as net.ipv4.conf.*.rp_filter numbers them.
const (
	strict = "1"
	loose  = "2"
)

// LooseFilter gives the change that lets answers in on a device that is not the best way back to their sender: reverse
// path filtering loose instead of strict. It is nil where that is so already. The kernel takes the greater one of the
// settings for the device and for all, so the device's alone has to change.
func LooseFilter(device string) (*Sysctl, error) {
	read := func(name string) (string, error) {
		data, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + name + "/rp_filter")
		return strings.TrimSpace(string(data)), err
	}
	all, err := read("all")
	if err != nil {
		return nil, err
	}
	own, err := read(device)
	if err != nil {
		return nil, err
	}
	if max(all, own) != strict {
		return nil, nil
	}
	return &Sysctl{File: "/proc/sys/net/ipv4/conf/" + device + "/rp_filter", New: loose, Old: own}, nil
}
