package mptcp

import (
	"os"
	"strings"
	"testing"

	"github.com/google/nftables"

	"heddle/internal/nft"
	"heddle/lab/labtest"
)

// settings are the forwarding of IPv4 and IPv6 at a host.
func (w *world) settings(host string) (text string) {
	w.t.Helper()
	err := w.Host(host).Do(func() error {
		for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
			value, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			text += strings.TrimSpace(string(value))
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// watchOpen looks for a moment in which a host forwards without a table that keeps it to leases, until stop reports it.
func (w *world) watchOpen(host string) (stop func() (open bool)) {
	w.t.Helper()
	done, seen := make(chan struct{}), make(chan bool, 1)
	begun := make(chan struct{})
	go func() {
		open := false
		err := w.Host(host).Do(func() error {
			conn, err := nft.Connect()
			if err != nil {
				return err
			}
			for first := true; ; first = false {
				tables, err := conn.ListTablesOfFamily(nftables.TableFamilyIPv4)
				if err != nil {
					return err
				}
				value, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward") // after the tables: they do not come back
				if err != nil {
					return err
				}
				open = open || len(tables) == 0 && value[0] != '0'
				if first {
					close(begun)
				}
				select {
				case <-done:
					return nil
				default:
				}
			}
		})
		if err != nil {
			w.t.Error(err)
		}
		seen <- open
	}()
	<-begun
	return func() bool {
		close(done)
		return <-seen
	}
}

// A node that was killed leaves the kernel forwarding, for leases alone. Status names it, and down restores the setting
// before it removes the table.
func TestDownTakesBackWhatAKilledNodeSet(t *testing.T) {
	t.Parallel()
	w := &world{Overlay: labtest.UpOverlay(t, overlay()), t: t, family: ipv4}
	start := func() func() {
		p := w.Node("n1", "--mode", "nat", "--set-forwarding", "--drain", "0s")
		if now := w.settings("n1"); now != "10" || !strings.Contains(w.rules("n1"), "heddle_nat") {
			t.Fatalf("forwarding is %s at a node that runs", now)
		}
		return p.Kill
	}
	start()()
	if now := w.settings("n1"); now != "10" {
		t.Fatalf("forwarding is %s after the kill", now)
	}
	out := w.Run("n1", "status")
	for _, want := range []string{"node-n1: not running, but it crashed", "`heddle down node-n1`", "sysctl net.ipv4.ip_forward=1 (it is 0)", "nft table ip heddle_nat"} {
		if !strings.Contains(out, want) {
			t.Errorf("status does not say %q:\n%s", want, out)
		}
	}
	stop := w.watchOpen("n1")
	out = w.Run("n1", "down", "node-n1")
	if stop() {
		t.Error("the table was removed while the kernel forwarded")
	}
	if !strings.Contains(out, "node-n1: a crash left this, taken back: sysctl net.ipv4.ip_forward=1") {
		t.Errorf("down does not say what it took back:\n%s", out)
	}
	restored := func(when string) {
		t.Helper()
		if now, rules := w.settings("n1"), w.rules("n1"); now != "00" || strings.Contains(rules, "heddle_nat") {
			t.Errorf("%s forwarding is %s, with\n%s", when, now, rules)
		}
		if out := w.Run("n1", "status"); strings.Contains(out, "node-n1") {
			t.Errorf("%s status says\n%s", when, out)
		}
	}
	restored("after down")
	// Down of a node that runs waits until all is restored, also what an earlier crash left.
	start()()
	start()
	stop = w.watchOpen("n1")
	w.Run("n1", "down", "node-n1")
	if stop() {
		t.Error("a node that ends removes the table while the kernel forwards")
	}
	restored("after a node")
}
