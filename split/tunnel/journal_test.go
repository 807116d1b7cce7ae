package tunnel

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"heddle/internal/errhint"
	"heddle/internal/journal"
	"heddle/internal/sysctl"
)

func TestCleanKeepsTheKillSwitch(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "note")
	put := &resolverFile{File: text, New: "new"}
	data, err := journal.Encode([]change{&firewall{Table: "heddle_x", KillSwitch: true}, put}, kinds)
	if err == nil {
		err = errors.Join(os.WriteFile(journalFile(dir, "office"), data, 0o600), put.Apply())
	}
	if err != nil {
		t.Fatal(err)
	}
	lines, err := Clean(dir, "office", true)
	if err != nil || !slices.Equal(lines, []string{put.String()}) {
		t.Errorf("took back %q, %v", lines, err)
	}
	if _, err := os.Stat(text); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what Clean says it took back is there: %v", err)
	}
	if j, err := openJournal(dir, "office"); err != nil || len(j.Changes()) != 1 {
		t.Errorf("left: %v, %v; want the kill switch", j, err)
	}
}

// samples has one change of each kind, with all fields set.
var samples = []change{
	&firewall{Table: "heddle_x", Device: "x", Mark: 7, KillSwitch: true, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")},
		Within: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Beside: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}},
	&deviceChange{Device: "x"},
	&address{Device: "x", Prefix: netip.MustParsePrefix("fd00::2/64")},
	&linkUp{Device: "x", MTU: 1420},
	&route{Device: "x", Destination: netip.MustParsePrefix("0.0.0.0/0"), Table: 51820},
	&rule{V6: true, Priority: 5, Mark: 7, Table: 51820},
	&sysctl.Change{File: "/proc/sys/net/ipv4/conf/all/src_valid_mark", New: "1", Old: "0"},
	&resolvconf{Device: "x", Text: "nameserver 10.0.0.1\n"},
	&resolvectl{Device: "x", Servers: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Search: []string{"corp.example"}},
	&resolverFile{File: "/etc/resolv.conf", New: "# x\nnameserver 10.0.0.1\n", Old: new("nameserver 192.0.2.1\n")},
	&hooks{Device: "x", When: "PostDown", AtEnd: true, Commands: []string{"echo %i"}},
}

func TestEachKindSurvivesTheFile(t *testing.T) {
	data, err := journal.Encode(samples, kinds)
	if err != nil {
		t.Fatal(err)
	}
	got, err := journal.Decode(data, kinds)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, samples) {
		t.Errorf("%s is read back as %v", data, got)
	}
	if len(samples) != len(kinds) {
		t.Errorf("%d kinds, %d samples", len(kinds), len(samples))
	}
	for _, c := range samples {
		if c.String() == "" || strings.Contains(c.String(), "%!") {
			t.Errorf("%T says %q", c, c)
		}
	}
}

// A journal holds commands: those in one that others could have written are not run.
func TestCommandsOfOthersAreNotRun(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "ran")
	data, err := journal.Encode([]change{&hooks{Device: "x", When: "PostDown", AtEnd: true, Commands: []string{"touch " + mark}}}, kinds)
	if err == nil {
		err = errors.Join(os.WriteFile(journalFile(dir, "office"), data, 0o600), os.Chmod(journalFile(dir, "office"), 0o622))
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = Clean(dir, "office", false)
	if !strings.Contains(errhint.Of(err), "undo by hand") {
		t.Errorf("got %v, want an error with a hint", err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command ran")
	}
	if err := os.Chmod(journalFile(dir, "office"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Clean(dir, "office", false); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the command of our own journal did not run: %v", err)
	}
}

func FuzzDecodeChanges(f *testing.F) {
	for _, c := range samples {
		data, err := journal.Encode([]change{c}, kinds)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		changes, err := journal.Decode(data, kinds)
		if err != nil {
			return
		}
		for _, c := range changes {
			_ = c.String() // must not panic on odd values
		}
	})
}
