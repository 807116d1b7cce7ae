package nat

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/filelock"
	"heddle/internal/journal"
	"heddle/internal/nft"
	"heddle/internal/sysctl"
	"heddle/path"
)

// journalEnd ends the name of a node's journal in the run directory, after the node's session name.
const journalEnd = ".nat.json"

// JournalKind is between the session's name and ".json" in the name of a journal.
const JournalKind = "nat"

// JournalFile is the journal of a node's session.
func JournalFile(dir, session string) string { return filepath.Join(dir, session+journalEnd) }

var kinds = journal.Kinds{"forwarding": func() journal.Change { return &forwarding{} }}

func openJournal(file string) (*journal.Journal, error) {
	return journal.Open(file, journal.Format{Kinds: kinds, Hint: hintFor,
		ByHand: "sysctl -w net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0 and only then nft delete table ip " + nodeLayout.name + ", and ip6"})
}

func hintFor(err error) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return errhint.Rights("CAP_NET_ADMIN")
	case errors.Is(err, unix.EROFS):
		return "/proc/sys cannot be written here; systemd does that with ProtectKernelTunables=yes"
	}
	return ""
}

// forwarding is a [journal.Change] that makes the kernel forward a family, for leases alone. The table must exist. Undo
// removes the family's table, but not before the kernel forwards nothing: the table blocks the packets of others.
type forwarding struct {
	Table   string         `json:"table"`
	V6      bool           `json:"v6"`
	Setting *sysctl.Change `json:"setting"`
	// Along are the settings that the kernel changes with this one, both ways, to values of its own.
	Along []*sysctl.Change `json:"along,omitempty"`

	stays []string // that somebody changed since, after Undo
}

// newForwarding plans to set a family's forwarding, which is off.
func (l layout) newForwarding(f family) (*forwarding, error) {
	here, err := sysctl.Namespace()
	if err != nil {
		return nil, err
	}
	c := &forwarding{Table: l.name, V6: f.v6(), Setting: &sysctl.Change{File: f.forwarding, New: "1", Old: "0", Namespace: here}}
	c.Along, err = f.along()
	return c, err
}

// along returns the changes that the kernel makes as it starts to forward, and does not revert as it stops. It then sets
// the forwarding of all devices to 0, and lets this machine accept redirects of IPv4 (net/ipv4/devinet.c,
// inet_forward_change; net/ipv6/addrconf.c, addrconf_forward_change).
func (f family) along() (all []*sysctl.Change, err error) {
	devices := filepath.Dir(filepath.Dir(f.devices("all")))
	entries, err := os.ReadDir(devices)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() == "all" {
			continue
		}
		value, err := sysctl.Get(f.devices(e.Name()))
		if journal.IgnoreGone(err) != nil {
			return nil, err
		}
		if err == nil && value != "0" {
			all = append(all, &sysctl.Change{File: f.devices(e.Name()), New: "1", Old: value})
		}
	}
	if !f.v6() {
		if value, err := sysctl.Get(redirectsIPv4); err != nil {
			return nil, err
		} else if value == "0" {
			all = append(all, &sysctl.Change{File: redirectsIPv4, New: "0", Old: "0"})
		}
	}
	return all, nil
}

// redirectsIPv4 is on again after the kernel forwarded, whatever it was before.
const redirectsIPv4 = "/proc/sys/net/ipv4/conf/all/accept_redirects"

// devices is the forwarding setting of a device.
func (f family) devices(name string) string {
	version := "ipv4"
	if f.v6() {
		version = "ipv6"
	}
	return "/proc/sys/net/" + version + "/conf/" + name + "/forwarding"
}

func (c *forwarding) family() family {
	if c.V6 {
		return families[1]
	}
	return families[0]
}

func (c *forwarding) layout() layout {
	l := nodeLayout
	l.name = c.Table
	return l
}

// String names the setting, and the table that goes with it.
func (c *forwarding) String() string {
	version := "ip"
	if c.V6 {
		version = "ip6"
	}
	text := fmt.Sprintf("%v, for leases alone: nft table %s %s drops what others would have forwarded", c.Setting, version, c.Table)
	if c.Setting.Elsewhere() {
		text += ", in another network namespace, " + c.Setting.Namespace
	}
	return text
}

// Apply closes the family's chain before it sets forwarding, so that others' packets are never forwarded.
func (c *forwarding) Apply() error {
	if err := c.layout().closeChain(c.family()); err != nil {
		return err
	}
	return c.Setting.Apply()
}

// Undo leaves the table in place if forwarding cannot be restored.
func (c *forwarding) Undo() error {
	if c.Setting.Elsewhere() {
		return fmt.Errorf("%w, %s: run `heddle down` there; if it is gone, so is the change, and the journal can be removed", sysctl.ErrElsewhere, c.Setting.Namespace)
	}
	var unchanged []*sysctl.Change // by others, since
	for _, a := range c.Along {
		if value, err := sysctl.Get(a.File); err == nil && value == a.New {
			unchanged = append(unchanged, a)
		}
	}
	stays, err := c.Setting.Restore()
	if err != nil {
		return err
	}
	c.stays = nil
	if stays != "" {
		c.stays = append(c.stays, c.Setting.Stays(stays))
	} else {
		for _, a := range unchanged {
			if err := journal.IgnoreGone(sysctl.Set(a.File, a.Old)); err != nil {
				return err
			}
		}
	}
	return nft.Remove(c.layout().table(c.family()))
}

// hold takes the table of this network namespace for this process: no other process may then open it or clean it up. It
// fails with [filelock.ErrHeld] if another one has it. The lock ends with the process.
func (l layout) hold(dir string) (*os.File, error) {
	here, err := sysctl.Namespace()
	if err != nil {
		return nil, err
	}
	number := strings.TrimSuffix(strings.TrimPrefix(here, "net:["), "]")
	f, err := os.OpenFile(filepath.Join(dir, l.name+"-"+number+".held"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Try(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// recall opens the journal, and finds what this process has to undo at its end: what a crash of this session left, or of
// another one in this network namespace, or of a process whose journal is lost. It changes nothing but journals.
func (t *Table) recall(file string) error {
	if file != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		var err error
		if t.held, err = t.hold(filepath.Dir(file)); errors.Is(err, filelock.ErrHeld) {
			return &path.Error{What: "nftables table " + t.name, Why: "another node of this machine has it", Hint: "a machine has one node in mode nat: `heddle status` shows what runs"}
		} else if err != nil {
			return err
		}
		if t.journal, err = openJournal(file); err != nil {
			return err
		}
		if err := t.forgetElsewhere(); err != nil {
			return err
		}
		for _, c := range t.journal.Changes() {
			t.forwarding[c.(*forwarding).family().number] = c.(*forwarding)
		}
		if err := t.adopt(file); err != nil {
			return err
		}
	}
	for _, f := range families {
		if t.forwarding[f.number] != nil || !t.leftClosed(f) {
			continue
		}
		c, err := t.newForwarding(f)
		if err != nil {
			return err
		}
		c.Along = nil // these are as the kernel set them
		if err := t.note(c); err != nil {
			return err
		}
	}
	return nil
}

// forgetElsewhere drops what a crash left in another network namespace, which this process cannot undo.
func (t *Table) forgetElsewhere() error {
	return t.journal.Forget(func(c journal.Change) bool {
		elsewhere := c.(*forwarding).Setting.Elsewhere()
		if elsewhere {
			t.log.Warn("a crash left this, and it is not taken back", "change", c.String())
		}
		return elsewhere
	})
}

// adopt takes over what crashes of nodes with other names left. This process holds the table, so none of them runs.
func (t *Table) adopt(own string) error {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(own), "*"+journalEnd))
	if err != nil {
		return err
	}
	for _, file := range files {
		if file == own {
			continue
		}
		j, err := openJournal(file)
		if err != nil {
			t.log.Warn("what a crash left is not taken over", "err", err)
			continue
		}
		ours := func(c journal.Change) bool {
			f := c.(*forwarding)
			return f.Table == t.name && !f.Setting.Elsewhere()
		}
		for _, c := range j.Changes() {
			f := c.(*forwarding)
			if !ours(c) || t.forwarding[f.family().number] != nil {
				continue
			}
			if err := t.note(f); err != nil {
				return err
			}
		}
		if err := j.Forget(ours); err != nil {
			return err
		}
	}
	return nil
}

// note records what an earlier process changed, for this one to undo.
func (t *Table) note(c *forwarding) error {
	if t.journal != nil {
		if err := t.journal.Note(c); err != nil {
			return err
		}
	}
	t.forwarding[c.family().number] = c
	return nil
}

// do makes a change, and records it first.
func (t *Table) do(c *forwarding) error {
	t.forwarding[c.family().number] = c // also if it fails half-way
	if t.journal != nil {
		return t.journal.Do(c)
	}
	return c.again()
}

// again makes a change that is recorded already.
func (c *forwarding) again() error {
	if err := c.Apply(); err != nil {
		return &path.Error{What: c.String(), Why: "it did not work", Err: err, Hint: hintFor(err)}
	}
	return nil
}

// undo restores the settings and removes the tables that go with them. Where a setting cannot be restored, left has its
// change, and the table stays.
func (t *Table) undo() (left []*forwarding, err error) {
	if t.journal != nil {
		_, err = t.journal.Undo(false)
		for _, c := range t.journal.Changes() {
			left = append(left, c.(*forwarding))
		}
	}
	for _, c := range t.forwarding {
		if c == nil {
			continue
		}
		if t.journal == nil {
			if failed := c.Undo(); failed != nil {
				left, err = append(left, c), errors.Join(err, failed)
			}
		}
		for _, line := range c.stays {
			t.log.Warn("a setting is not restored", "now", line)
		}
	}
	return left, err
}

// Left returns a line for each setting that the session's node changed and did not restore. If it does not run, a crash left
// them.
func Left(dir, session string) (lines []string, err error) {
	j, err := openJournal(JournalFile(dir, session))
	if err != nil {
		return nil, err
	}
	for _, c := range j.Changes() {
		lines = append(lines, c.String())
	}
	return lines, nil
}

// Clean restores the settings that a crash of the session's node left, and removes the table after that. undone has a line
// for each change, and stays one for each setting that somebody changed since. The caller must hold the session's name.
func Clean(dir, session string) (undone, stays []string, err error) {
	j, err := openJournal(JournalFile(dir, session))
	if err != nil || len(j.Changes()) == 0 {
		return nil, nil, err
	}
	table := j.Changes()[0].(*forwarding).layout() // a node has one
	held, err := table.hold(dir)
	if errors.Is(err, filelock.ErrHeld) {
		return nil, nil, &path.Error{What: "node " + session, Why: "another node of this machine takes over what its crash left", Hint: "that node restores the settings when it ends"}
	} else if err != nil {
		return nil, nil, err
	}
	defer held.Close()
	content, _ := table.read()
	all, err := j.Undo(false)
	for _, c := range all {
		f := c.(*forwarding)
		undone = append(undone, f.String())
		stays = append(stays, f.stays...)
	}
	if err != nil {
		return undone, stays, &path.Error{What: "node " + session, Why: "not all that a crash left could be taken back; the table that blocks the packets of others stays", Err: err, Hint: hintFor(err)}
	}
	forget(content.known)
	return undone, stays, table.remove(nil)
}

// remove removes the tables that exist, except those of the changes that are still to be undone.
func (l layout) remove(keep []*forwarding) (err error) {
	for _, f := range families {
		if !slices.ContainsFunc(keep, func(c *forwarding) bool { return c.V6 == f.v6() }) {
			err = errors.Join(err, nft.Remove(l.table(f)))
		}
	}
	return err
}
