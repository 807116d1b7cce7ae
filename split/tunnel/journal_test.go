package tunnel

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// fakeChange notes what is done to it, and looks at the journal's file as it is applied.
type fakeChange struct {
	Name string `json:"name"`
	Deaf bool   `json:"deaf"` // Undo fails

	file  string
	calls *[]string
	seen  string
}

func (c *fakeChange) String() string { return c.Name }

func (c *fakeChange) Apply() error {
	data, _ := os.ReadFile(c.file)
	c.seen = string(data)
	return nil
}

func (c *fakeChange) Undo() error {
	if c.calls != nil {
		*c.calls = append(*c.calls, c.Name)
	}
	if c.Deaf {
		return errors.New("it resists")
	}
	return nil
}

func withFakes(t *testing.T) {
	kinds["fake"] = func() change { return &fakeChange{} }
	t.Cleanup(func() { delete(kinds, "fake") })
}

func TestJournalWritesBeforeItDoes(t *testing.T) {
	withFakes(t)
	j, err := openJournal(t.TempDir(), "office")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second"} {
		c := &fakeChange{Name: name, file: j.file}
		if err := j.do(c); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(c.seen, name) {
			t.Errorf("%s was made before it was written down: %q", name, c.seen)
		}
	}
	info, err := os.Stat(j.file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v; want mode 0600", info, err)
	}
}

func TestJournalUndoesBackwards(t *testing.T) {
	withFakes(t)
	var calls []string
	j, err := openJournal(t.TempDir(), "office")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := j.do(&fakeChange{Name: name, Deaf: name == "b", calls: &calls}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.undo(0); err == nil || !strings.Contains(err.Error(), "undo b: it resists") {
		t.Errorf("got %v", err)
	}
	if want := []string{"c", "b", "a"}; !slices.Equal(calls, want) {
		t.Errorf("undone %v, want %v", calls, want)
	}
	again, err := openJournal(filepath.Dir(j.file), "office")
	if err != nil || len(again.changes) != 1 || again.changes[0].String() != "b" {
		t.Fatalf("left in the file: %v, %v; want b", again, err)
	}
	again.changes[0].(*fakeChange).Deaf = false
	if err := again.undo(0); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(j.file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	if err := again.undo(0); err != nil {
		t.Errorf("nothing to undo: %v", err)
	}
}

func TestCleanKeepsTheKillSwitch(t *testing.T) {
	withFakes(t)
	dir := t.TempDir()
	j, err := openJournal(dir, "office")
	if err != nil {
		t.Fatal(err)
	}
	j.changes = []change{&firewall{Table: "heddle_x", KillSwitch: true}, &fakeChange{Name: "rule"}}
	if err := j.save(); err != nil {
		t.Fatal(err)
	}
	lines, err := Clean(dir, "office", true)
	if err != nil || !slices.Equal(lines, []string{"rule"}) {
		t.Errorf("took back %q, %v", lines, err)
	}
	if j, err = openJournal(dir, "office"); err != nil || len(j.changes) != 1 {
		t.Errorf("left: %v, %v; want the kill switch", j, err)
	}
}

// samples has one change of each kind, with all fields set.
var samples = []change{
	&firewall{Table: "heddle_x", Device: "x", Mark: 7, KillSwitch: true, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}},
	&deviceChange{Device: "x"},
	&address{Device: "x", Prefix: netip.MustParsePrefix("fd00::2/64")},
	&linkUp{Device: "x", MTU: 1420},
	&route{Device: "x", Destination: netip.MustParsePrefix("0.0.0.0/0"), Table: 51820},
	&rule{V6: true, Priority: 5, Mark: 7, Table: 51820},
	&sysctl{File: "/proc/sys/net/ipv4/conf/all/src_valid_mark", New: "1", Old: "0"},
	&resolvconf{Device: "x", Text: "nameserver 10.0.0.1\n"},
	&resolvectl{Device: "x", Servers: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Search: []string{"corp.example"}},
	&resolverFile{File: "/etc/resolv.conf", New: "# x\nnameserver 10.0.0.1\n", Old: new("nameserver 192.0.2.1\n")},
	&hooks{Device: "x", When: "PostDown", AtEnd: true, Commands: []string{"echo %i"}},
}

func TestEachKindSurvivesTheFile(t *testing.T) {
	j := &journal{file: filepath.Join(t.TempDir(), "x.journal.json"), changes: samples}
	if err := j.save(); err != nil {
		t.Fatal(err)
	}
	data, err := readOwn(j.file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeChanges(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, samples) {
		text, _ := json.Marshal(got)
		t.Errorf("read back as %s", text)
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

func TestJournalRefusesWhatIsNotItsOwn(t *testing.T) {
	good := []byte(`[{"kind":"hooks","change":{"when":"PostDown","at_end":true,"commands":["touch /tmp/heddle-test-owned"]}}]`)
	for name, make := range map[string]func(file string) error{
		"others can write": func(file string) error {
			if err := os.WriteFile(file, good, 0o600); err != nil {
				return err
			}
			return os.Chmod(file, 0o622)
		},
		"a link": func(file string) error {
			if err := os.WriteFile(file+".other", good, 0o600); err != nil {
				return err
			}
			return os.Symlink(file+".other", file)
		},
		"a directory":    func(file string) error { return os.Mkdir(file, 0o700) },
		"not JSON":       func(file string) error { return os.WriteFile(file, []byte("hello"), 0o600) },
		"an unknown one": func(file string) error { return os.WriteFile(file, []byte(`[{"kind":"disk","change":{}}]`), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := make(journalFile(dir, "office")); err != nil {
				t.Fatal(err)
			}
			_, err := Clean(dir, "office", false)
			var hinted interface{ HintText() string }
			if !errors.As(err, &hinted) || hinted.HintText() == "" {
				t.Errorf("got %v, want an error with a hint", err)
			}
			if _, err := os.Stat("/tmp/heddle-test-owned"); err == nil {
				t.Error("the command ran")
			}
		})
	}
}

func FuzzDecodeChanges(f *testing.F) {
	for _, c := range samples {
		data, err := json.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		entry, err := json.Marshal([]entry{{Kind: kindOf(c), Change: data}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(entry)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		changes, err := decodeChanges(data)
		if err != nil {
			return
		}
		for _, c := range changes {
			_ = c.String() // must not panic on odd values
		}
	})
}
