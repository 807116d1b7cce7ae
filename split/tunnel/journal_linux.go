package tunnel

import (
	"errors"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/journal"
	"heddle/internal/nft"
	"heddle/internal/sysctl"
)

// ofDevice is a change of the tunnel's device, which the kernel reverts when the device goes.
type ofDevice struct{}

func (ofDevice) Undo() error { return nil }

func (ofDevice) passes() {}

// passes marks the device too: it ends with this process.
func (*deviceChange) passes() {}

// lasting lists what undoing will revert, a line each.
func lasting(changes []change) []string {
	var lines []string
	for _, c := range changes {
		_, gone := c.(interface{ passes() })
		if h, ok := c.(*hooks); ok && !h.AtEnd {
			gone = true
		}
		if line := c.String(); !gone && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

var kinds = journal.Kinds{
	"firewall":   func() change { return &firewall{} },
	"device":     func() change { return &deviceChange{} },
	"address":    func() change { return &address{} },
	"link-up":    func() change { return &linkUp{} },
	"route":      func() change { return &route{} },
	"rule":       func() change { return &rule{} },
	"sysctl":     func() change { return &sysctl.Change{} },
	"resolvconf": func() change { return &resolvconf{} },
	"resolvectl": func() change { return &resolvectl{} },
	"resolver":   func() change { return &resolverFile{} },
	"hooks":      func() change { return &hooks{} },
}

func journalFile(dir, name string) string { return filepath.Join(dir, name+".journal.json") }

// openJournal opens the journal of the tunnel's changes, as a crash left it.
func openJournal(dir, name string) (*journal.Journal, error) {
	return journal.Open(journalFile(dir, name),
		journal.Format{Kinds: kinds, ByHand: "nft delete table inet " + nft.Name(name) + "; see ip rule", Hint: hintFor})
}

// hintFor returns a hint for a change that the kernel refused.
func hintFor(err error) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return errhint.Rights("CAP_NET_ADMIN") + ", or use --socks for a tunnel that needs no rights"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT):
		return "the kernel lacks this: `heddle doctor` says what there is; --socks needs less"
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.EBUSY):
		return "something of that name is there already: `ip link` shows devices, `ip rule` rules"
	}
	return ""
}
