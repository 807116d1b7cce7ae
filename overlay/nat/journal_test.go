package nat

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"

	"heddle/internal/errhint"
	"heddle/internal/journal"
	"heddle/internal/nft"
	"heddle/internal/nstest"
	"heddle/internal/sysctl"
)

// crashing opens the node's table as a session, which sets forwarding of both families.
func (w *world) crashing(dir, session string) *Table {
	w.t.Helper()
	table := w.open(Options{SetForwarding: true, Journal: JournalFile(dir, session)})
	w.lease(table, rule6(), time.Minute)
	if now := w.settings(); now != "11" {
		w.t.Fatalf("forwarding is %s", now)
	}
	return table
}

// crash ends a table as the end of its process does.
func crash(table *Table) { table.release() }

func (w *world) left(dir, session string) (lines []string) {
	w.t.Helper()
	w.node.Do(w.t, func() (err error) { lines, err = Left(dir, session); return err })
	return lines
}

func (w *world) clean(dir, session string) (undone, stays []string, err error) {
	w.t.Helper()
	w.node.Do(w.t, func() error { undone, stays, err = Clean(dir, session); return nil })
	return undone, stays, err
}

func (w *world) tables() (n int) {
	w.t.Helper()
	w.node.Do(w.t, func() error {
		conn, err := nft.Connect()
		if err != nil {
			return err
		}
		tables, err := conn.ListTables()
		n = len(tables)
		return err
	})
	return n
}

func journals(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A crash leaves a journal, which names what is set. Clean restores it while nobody's packets pass.
func TestCrashIsTakenBack(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t, false), t.TempDir()
	passed := w.knock()
	for range 5 {
		crash(w.crashing(dir, "node-a"))
		left := w.left(dir, "node-a")
		if len(left) != 2 || !strings.Contains(left[0], "net.ipv4.ip_forward=1") || !strings.Contains(left[1], "net.ipv6.conf.all.forwarding=1") ||
			!strings.Contains(left[1], "nft table ip6 heddle_nat") {
			t.Fatalf("left: %q", left)
		}
		undone, stays, err := w.clean(dir, "node-a")
		if err != nil || len(undone) != 2 || len(stays) != 0 {
			t.Fatalf("undone %q, stays %q, %v", undone, stays, err)
		}
		if now, n := w.settings(), w.tables(); now != "00" || n != 0 || len(journals(t, dir)) != 0 {
			t.Fatalf("after that forwarding is %s; %d tables, journals %q", now, n, journals(t, dir))
		}
	}
	if n := passed(); n != 0 {
		t.Errorf("%d packets of others were forwarded", n)
	}
	if undone, _, err := w.clean(dir, "node-a"); err != nil || len(undone) != 0 {
		t.Errorf("again: %q, %v", undone, err)
	}
}

// knock has the client send packets to the server without a lease, as fast as it can, until passed counts those that came.
func (w *world) knock() (passed func() int) {
	w.t.Helper()
	w.client.Do(w.t, func() error { return route("10.9.2.0/24", "10.9.1.1") })
	var from, to net.PacketConn
	at := netip.AddrPortFrom(server4.Addr(), 9)
	w.client.Do(w.t, func() (err error) { from, err = net.ListenPacket("udp4", ":0"); return err })
	w.server.Do(w.t, func() (err error) { to, err = net.ListenPacket("udp4", at.String()); return err })
	w.t.Cleanup(func() { from.Close(); to.Close() })
	done, count := make(chan struct{}), make(chan int, 1)
	go func() {
		for {
			select {
			case <-done:
				return
			default:
				_, _ = from.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(at))
			}
		}
	}()
	go func() {
		n := 0
		for {
			if _, _, err := to.ReadFrom(make([]byte, 8)); err != nil {
				count <- n
				return
			}
			n++
		}
	}()
	return func() int {
		close(done)
		_ = to.SetReadDeadline(time.Now().Add(inVain))
		return <-count
	}
}

// Where forwarding cannot be restored, the table that blocks others' packets stays, and so does the journal.
func TestTableStaysWhileForwardingDoes(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t, false), t.TempDir()
	crash(w.crashing(dir, "node-a"))
	file := JournalFile(dir, "node-a")
	j, err := openJournal(file)
	if err != nil {
		t.Fatal(err)
	}
	// A setting that nobody can write stands for one below a /proc/sys that is read-only.
	const readOnly = "/proc/sys/kernel/ngroups_max"
	value, err := sysctl.Get(readOnly)
	if err != nil {
		t.Fatal(err)
	}
	changes := j.Changes()
	changes[0].(*forwarding).Setting.File, changes[0].(*forwarding).Setting.New = readOnly, value
	data, err := journal.Encode(changes, kinds)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	undone, _, err := w.clean(dir, "node-a")
	if err == nil || !strings.Contains(err.Error(), "the table that blocks the packets of others stays") || len(undone) != 1 {
		t.Errorf("undone %q, %v", undone, err)
	}
	w.node.Do(t, func() error {
		if l := nodeLayout; !l.leftClosed(families[0]) || l.leftClosed(families[1]) {
			t.Error("the wrong table was removed")
		}
		return nil
	})
	if left := w.left(dir, "node-a"); len(left) != 1 {
		t.Errorf("left in the journal: %q", left)
	}
}

// What the kernel changes along with forwarding is as before at the end, and what somebody changed since stays.
func TestOtherSettingsAreRestored(t *testing.T) {
	t.Parallel()
	const redirects, c4, c6, default4 = "ipv4/conf/all/accept_redirects", "ipv4/conf/c/forwarding", "ipv6/conf/c/forwarding", "ipv4/conf/default/forwarding"
	w, dir := newWorld(t, false), t.TempDir()
	read := func() (values [6]string) {
		w.node.Do(t, func() (err error) {
			for i, name := range []string{redirects, c4, c6, default4, "ipv4/conf/s/forwarding", "ipv6/conf/s/forwarding"} {
				if values[i], err = sysctl.Get("/proc/sys/net/" + name); err != nil {
					return err
				}
			}
			return nil
		})
		return values
	}
	w.node.Do(t, func() error {
		return errors.Join(nstest.Set(redirects, "0"), nstest.Set(c4, "1"), nstest.Set(c6, "1"), nstest.Set(default4, "1"))
	})
	before := read()
	if now := w.settings(); now != "00" || before != [6]string{"0", "1", "1", "1", "0", "0"} {
		t.Fatalf("%s, %q", now, before)
	}
	w.node.Do(t, w.crashing(dir, "node-a").Close)
	if after := read(); after != before || w.settings() != "00" {
		t.Errorf("after a node they are %q, were %q; forwarding is %s", after, before, w.settings())
	}
	crash(w.crashing(dir, "node-a"))
	if _, _, err := w.clean(dir, "node-a"); err != nil {
		t.Error(err)
	}
	if after := read(); after != before || w.settings() != "00" {
		t.Errorf("after a crash they are %q, were %q; forwarding is %s", after, before, w.settings())
	}
	crash(w.crashing(dir, "node-a"))
	w.node.Do(t, func() error {
		return errors.Join(nstest.Set("ipv4/ip_forward", "2"), nstest.Set(c6, "0"))
	})
	_, stays, err := w.clean(dir, "node-a")
	if err != nil || len(stays) != 1 || !strings.Contains(stays[0], "net.ipv4.ip_forward=2 (Heddle set 1") || w.settings() != "20" {
		t.Errorf("stays %q, %v; forwarding is %s", stays, err, w.settings())
	}
	if after := read(); after[2] != "0" {
		t.Errorf("somebody changed %s, and it was changed back", c6)
	}
	if n := w.tables(); n != 0 {
		t.Errorf("%d tables are left", n)
	}
}

// A node under another name takes over what a crash left, also of a process without a journal.
func TestAnotherNodeTakesOver(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t, false), t.TempDir()
	lost := w.crashing(t.TempDir(), "node-lost") // with its journal's directory
	lease := w.lease(lost, rule4(), time.Minute)
	crash(lost)
	first := w.open(Options{Journal: JournalFile(dir, "node-a")})
	if left := w.left(dir, "node-a"); len(left) != 2 {
		t.Errorf("found in the kernel: %q", left)
	}
	crash(first)
	second := w.open(Options{Journal: JournalFile(dir, "node-b")})
	if a, b := w.left(dir, "node-a"), w.left(dir, "node-b"); len(a) != 0 || len(b) != 2 {
		t.Errorf("after a takeover %q and %q", a, b)
	}
	// While it has the table, nobody else gets it.
	w.node.Do(t, func() error {
		if _, err := Open(Options{Journal: JournalFile(dir, "node-c")}); !strings.Contains(errhint.Of(err), "one node in mode nat") {
			t.Errorf("a second node: %v", err)
		}
		return nil
	})
	if undone, _, err := w.clean(dir, "node-b"); err == nil || len(undone) != 0 {
		t.Errorf("cleaned up under a running node: %q, %v", undone, err)
	}
	if _, _, err := w.dial(client4, lease.Listen); err != nil || w.settings() != "11" {
		t.Errorf("the lease does not hold: %v; forwarding is %s", err, w.settings())
	}
	w.node.Do(t, second.Close)
	if now, n := w.settings(), w.tables(); now != "00" || n != 0 || len(journals(t, dir)) != 0 {
		t.Errorf("at the end forwarding is %s; %d tables, journals %q", now, n, journals(t, dir))
	}
}

// Somebody who flushes all tables after a crash makes the machine a router for everybody. The journal knows, so the next
// node closes it.
func TestNextNodeClosesWhatAFlushOpened(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t, false), t.TempDir()
	crash(w.crashing(dir, "node-a"))
	w.node.Do(t, func() error { return nft.Change(func(conn *nftables.Conn) error { conn.FlushRuleset(); return nil }) })
	if left := w.left(dir, "node-a"); len(left) != 2 {
		t.Fatalf("left: %q", left)
	}
	table := w.open(Options{Journal: JournalFile(dir, "node-a")})
	w.node.Do(t, func() error {
		for _, f := range families {
			if !table.leftClosed(f) {
				t.Errorf("%s forwards for everybody", f.forwarding)
			}
		}
		return table.Close()
	})
	if now := w.settings(); now != "00" {
		t.Errorf("at the end forwarding is %s", now)
	}
}

// A node closes such a table again while it runs.
func TestSweepClosesWhatAFlushOpened(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	table := w.crashing(t.TempDir(), "node-a")
	w.node.Do(t, func() error {
		if err := nft.Change(func(conn *nftables.Conn) error { conn.FlushRuleset(); return nil }); err != nil {
			return err
		}
		return table.Sweep()
	})
	w.node.Do(t, func() error {
		for _, f := range families {
			if !table.leftClosed(f) {
				t.Errorf("%s forwards for everybody", f.forwarding)
			}
		}
		return nil
	})
	if _, _, err := w.dial(client4, w.lease(table, rule4(), time.Minute).Listen); err != nil {
		t.Errorf("a lease after that: %v", err)
	}
	w.node.Do(t, table.Close)
}

// What a crash left in one network namespace is not undone in another.
func TestCrashElsewhere(t *testing.T) {
	t.Parallel()
	w, other, dir := newWorld(t, false), newWorld(t, true), t.TempDir()
	crash(w.crashing(dir, "node-a"))
	undone, _, err := other.clean(dir, "node-a")
	if !errors.Is(err, sysctl.ErrElsewhere) || len(undone) != 0 || other.settings() != "11" {
		t.Errorf("undone %q, %v; forwarding is %s", undone, err, other.settings())
	}
	if left := other.left(dir, "node-a"); len(left) != 2 || !strings.Contains(left[0], "in another network namespace") {
		t.Errorf("left: %q", left)
	}
	if table := other.open(Options{Journal: JournalFile(dir, "node-b")}); len(w.left(dir, "node-a")) != 2 {
		t.Error("taken over by a node elsewhere")
	} else {
		other.node.Do(t, table.Close)
	}
	if now := other.settings(); now != "11" {
		t.Errorf("forwarding is %s", now)
	}
	if undone, _, err := w.clean(dir, "node-a"); err != nil || len(undone) != 2 || w.settings() != "00" {
		t.Errorf("where it was: %q, %v; forwarding is %s", undone, err, w.settings())
	}
}
