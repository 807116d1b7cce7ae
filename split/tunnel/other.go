//go:build !linux

package tunnel

import (
	"log/slog"
	"net/netip"

	"golang.zx2c4.com/wireguard/device"

	"heddle/internal/errhint"
	"heddle/internal/journal"
)

// Other systems than Linux have only userspace tunnels. This file replaces what would change the machine.

func makePlan(o *Options) (*plan, error) {
	return nil, errhint.NeedsLinux("a device for tunnel "+o.Name, "offer the tunnel as a proxy with --socks 127.0.0.1:1080")
}

type firewall struct {
	journal.Change
	Within, Beside []netip.Prefix
}

type controlSocket struct{}

func serveControl(string, *device.Device, *slog.Logger) *controlSocket { return nil }

func (*controlSocket) close() {}

func setMTU(name string, _ int) error { return errhint.NeedsLinux("the device of tunnel "+name, "") }

func tableName(name string) string { return name }

func otherKillSwitch(string) error { return nil }

func lasting([]change) []string { return nil }

func journalFile(_, name string) string { return name }

func openJournal(string, string) (*journal.Journal, error) { return nil, nil }

func removeDeadSocket(string) error { return nil }
