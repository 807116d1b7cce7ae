package tunnel

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// The first that this machine has is used: resolvconf(8), resolvectl(1), the file itself.

// resolverChange returns the change for a tunnel's DNS. file is resolv.conf.
func resolverChange(device string, servers []netip.Addr, search []string, file string) change {
	if _, err := exec.LookPath("resolvconf"); err == nil {
		return &resolvconf{Device: device, Text: resolverText(servers, search)}
	}
	// The directory exists while systemd-resolved runs (systemd-resolved.service(8)).
	if _, err := os.Stat("/run/systemd/resolve"); err == nil {
		if _, err := exec.LookPath("resolvectl"); err == nil {
			return &resolvectl{Device: device, Servers: servers, Search: search}
		}
	}
	header := fmt.Sprintf("# Written by heddle for the tunnel %s; `heddle down %s` brings back what was here.\n", device, device)
	c := &resolverFile{File: file, New: header + resolverText(servers, search)}
	if old, err := os.ReadFile(file); err == nil {
		text := string(old)
		c.Old = &text
	}
	return c
}

// resolverText returns the lines of resolv.conf(5).
func resolverText(servers []netip.Addr, search []string) string {
	var b strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(search) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(search, " "))
	}
	return b.String()
}

// resolvconf sets DNS by resolvconf(8), with wg-quick(8)'s arguments.
type resolvconf struct {
	Device string `json:"device"`
	Text   string `json:"text"`
}

func (c *resolvconf) String() string {
	return fmt.Sprintf("resolvconf -a %s -m 0 -x (%s)", c.Device, strings.ReplaceAll(strings.TrimSpace(c.Text), "\n", ", "))
}

func (c *resolvconf) Apply() error {
	return runCommand(c.Text, "resolvconf", "-a", c.Device, "-m", "0", "-x")
}
func (c *resolvconf) Undo() error { return runCommand("", "resolvconf", "-d", c.Device, "-f") }

// resolvectl sets DNS by systemd-resolved, for all names.
type resolvectl struct {
	Device  string       `json:"device"`
	Servers []netip.Addr `json:"servers"`
	Search  []string     `json:"search,omitempty"`
}

func (c *resolvectl) String() string {
	return fmt.Sprintf("resolvectl dns %[1]s %[2]s; resolvectl domain %[1]s %[3]s", c.Device, c.servers(), c.domains())
}

func (c *resolvectl) servers() string { return strings.Trim(fmt.Sprint(c.Servers), "[]") }

// domains includes "~.", which sends all names to this link (resolvectl(1)).
func (c *resolvectl) domains() string { return strings.Join(append([]string{"~."}, c.Search...), " ") }

func (c *resolvectl) Apply() error {
	if err := runCommand("", "resolvectl", append([]string{"dns", c.Device}, strings.Fields(c.servers())...)...); err != nil {
		return err
	}
	return runCommand("", "resolvectl", append([]string{"domain", c.Device}, strings.Fields(c.domains())...)...)
}

// Undo does nothing if the device is gone, since systemd-resolved then forgets its settings.
func (c *resolvectl) Undo() error {
	if _, err := os.Stat("/sys/class/net/" + c.Device); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return runCommand("", "resolvectl", "revert", c.Device)
}

// resolverFile writes resolv.conf in place: it may be a bind mount, which a rename cannot replace.
type resolverFile struct {
	File string  `json:"file"`
	New  string  `json:"new"`
	Old  *string `json:"old"` // previous content; nil without a file
}

func (c *resolverFile) String() string {
	return fmt.Sprintf("write %s (%s)", c.File, strings.Join(strings.Split(strings.TrimSpace(c.New), "\n")[1:], ", "))
}

func (c *resolverFile) Apply() error { return os.WriteFile(c.File, []byte(c.New), 0o644) }

// Undo leaves a file alone that somebody has changed since.
func (c *resolverFile) Undo() error {
	now, err := os.ReadFile(c.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// A crash during a write leaves a prefix of New or Old.
	ours := strings.HasPrefix(c.New, string(now)) || c.Old != nil && strings.HasPrefix(*c.Old, string(now))
	if !ours {
		return nil
	}
	if c.Old == nil {
		return os.Remove(c.File)
	}
	return os.WriteFile(c.File, []byte(*c.Old), 0o644)
}

func runCommand(stdin, name string, args ...string) error {
	command := exec.Command(name, args...)
	command.Stdin = strings.NewReader(stdin)
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(output)))
	}
	return nil
}
