package plane

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// note is a change that only remembers what was done with it.
type note struct {
	Name string `json:"name"`
	Fail bool   `json:"fail"`
}

var done []string

func (n *note) Apply() error { done = append(done, "do "+n.Name); return nil }

func (n *note) Undo() error {
	done = append(done, "undo "+n.Name)
	if n.Fail {
		return errors.New("it resists")
	}
	return nil
}

func (n *note) String() string { return n.Name }

var notes = Kinds{"note": func() Change { return &note{} }}

func TestJournalUndoesBackwards(t *testing.T) {
	dir := t.TempDir()
	j, err := OpenJournal(dir, "s", "test", notes)
	if err != nil {
		t.Fatal(err)
	}
	done = nil
	for _, c := range []*note{{Name: "a"}, {Name: "b", Fail: true}, {Name: "c"}} {
		if err := j.Do(c); err != nil {
			t.Fatal(err)
		}
	}
	// Another process finds the same, and what resists stays for the next.
	lines, err := Clean(dir, "s", "test", notes)
	if err == nil || !slices.Equal(lines, []string{"c", "a"}) {
		t.Errorf("%q, %v", lines, err)
	}
	lines, err = Clean(dir, "s", "test", notes)
	if err == nil || len(lines) != 0 {
		t.Errorf("%q, %v", lines, err)
	}
	want := "do a,do b,do c,undo c,undo b,undo a,undo b"
	if got := strings.Join(done, ","); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestJournalLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	j, err := OpenJournal(dir, "s", "test", notes)
	if err == nil {
		err = j.Do(&note{Name: "a"})
	}
	if err == nil {
		_, err = j.Undo()
	}
	left, globErr := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || globErr != nil || len(left) != 0 {
		t.Errorf("%v, %v, %v", err, globErr, left)
	}
}

// What the journal says is done with our rights, so only a file that is ours alone counts.
func TestJournalsOfOthersAreRefused(t *testing.T) {
	for name, prepare := range map[string]func(file string) error{
		"writable by others": func(file string) error {
			return errors.Join(os.WriteFile(file, []byte("[]"), 0o600), os.Chmod(file, 0o622))
		},
		"a link":       func(file string) error { return os.Symlink("/dev/null", file) },
		"a directory":  func(file string) error { return os.Mkdir(file, 0o700) },
		"unknown kind": func(file string) error { return os.WriteFile(file, []byte(`[{"kind":"shell","change":{}}]`), 0o600) },
		"no JSON":      func(file string) error { return os.WriteFile(file, []byte("rm -rf"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := prepare(filepath.Join(dir, "s.test.json")); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenJournal(dir, "s", "test", notes); err == nil || !strings.Contains(err.Error(), "it cannot be used") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestGuardTableNames(t *testing.T) {
	for session, want := range map[string]string{"office": "heddle_kernel_office", "split-4433": "heddle_kernel_split_2d4433"} {
		if got := GuardTable("kernel", session); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
