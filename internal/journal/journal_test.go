package journal

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"heddle/internal/errhint"
)

// note is a change that notes what is done with it, and looks at the journal's file as it is applied.
type note struct {
	Name   string `json:"name"`
	Resist bool   `json:"resist"` // Undo fails
	Guard  bool   `json:"guard"`

	file string
	seen string
}

var done []string

func (n *note) String() string { return n.Name }

func (n *note) Guards() bool { return n.Guard }

func (n *note) Apply() error {
	done = append(done, "do "+n.Name)
	data, _ := os.ReadFile(n.file)
	n.seen = string(data)
	return nil
}

func (n *note) Undo() error {
	done = append(done, "undo "+n.Name)
	if n.Resist {
		return errors.New("it resists")
	}
	return nil
}

var notes = Format{Kinds: Kinds{"note": func() Change { return &note{} }}, ByHand: "look for notes", Hint: func(error) string { return "" }}

func openNotes(t *testing.T, file string) *Journal {
	t.Helper()
	j, err := Open(file, notes)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func do(t *testing.T, j *Journal, all ...*note) {
	t.Helper()
	done = nil
	for _, n := range all {
		if err := j.Do(n); err != nil {
			t.Fatal(err)
		}
	}
}

func names(all []Change) (out []string) {
	for _, c := range all {
		out = append(out, c.String())
	}
	return out
}

func TestWritesBeforeItDoes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "office.json")
	j := openNotes(t, file)
	for _, name := range []string{"first", "second"} {
		n := &note{Name: name, file: file}
		do(t, j, n)
		if !strings.Contains(n.seen, name) {
			t.Errorf("%s was made before it was written down: %q", name, n.seen)
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v; want mode 0600", info, err)
	}
}

// A change that cannot be written down is not made.
func TestDoesNotWhatItCannotWriteDown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	j := openNotes(t, filepath.Join(dir, "office.json"))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	done = nil
	if err := j.Do(&note{Name: "a"}); err == nil || len(done) != 0 || len(j.Changes()) != 0 {
		t.Errorf("%v; done %v, noted %v", err, done, j.Changes())
	}
}

func TestUndoesBackwards(t *testing.T) {
	file := filepath.Join(t.TempDir(), "office.json")
	do(t, openNotes(t, file), &note{Name: "a"}, &note{Name: "b", Resist: true}, &note{Name: "c"})
	// Another process finds the same, and what resists stays for the next.
	undone, err := openNotes(t, file).Undo(false)
	if err == nil || !strings.Contains(err.Error(), "undo b: it resists") || !slices.Equal(names(undone), []string{"c", "a"}) {
		t.Errorf("%q, %v", names(undone), err)
	}
	if want := []string{"do a", "do b", "do c", "undo c", "undo b", "undo a"}; !slices.Equal(done, want) {
		t.Errorf("%q, want %q", done, want)
	}
	again := openNotes(t, file)
	if left := again.Changes(); !slices.Equal(names(left), []string{"b"}) {
		t.Fatalf("left in the file: %q, want b", names(left))
	}
	again.Changes()[0].(*note).Resist = false
	if _, err := again.Undo(false); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	if undone, err := again.Undo(false); err != nil || len(undone) != 0 {
		t.Errorf("nothing to undo: %q, %v", names(undone), err)
	}
}

func TestUndoKeepsTheGuards(t *testing.T) {
	file := filepath.Join(t.TempDir(), "office.json")
	j := openNotes(t, file)
	do(t, j, &note{Name: "guard", Guard: true}, &note{Name: "b", Resist: true}, &note{Name: "c"})
	if _, err := j.Undo(true); err == nil {
		t.Error("b did not resist")
	}
	for name, j := range map[string]*Journal{"here": j, "in the file": openNotes(t, file)} {
		if left := names(j.Changes()); !slices.Equal(left, []string{"guard", "b"}) {
			t.Errorf("left %s: %q", name, left)
		}
	}
	if slices.Contains(done, "undo guard") {
		t.Error("the guard was taken back")
	}
}

// Note records a change without making it. Undo leaves out what Forget dropped.
func TestNotesAndForgets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "office.json")
	j := openNotes(t, file)
	done = nil
	for _, name := range []string{"a", "b"} {
		if err := j.Note(&note{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	j = openNotes(t, file)
	if err := j.Forget(func(c Change) bool { return c.String() == "a" }); err != nil {
		t.Fatal(err)
	}
	if left := names(openNotes(t, file).Changes()); !slices.Equal(left, []string{"b"}) || !slices.Equal(names(j.Changes()), left) {
		t.Errorf("left %q", left)
	}
	if _, err := j.Undo(false); err != nil || !slices.Equal(done, []string{"undo b"}) {
		t.Errorf("%q, %v", done, err)
	}
}

func TestLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	j := openNotes(t, filepath.Join(dir, "office.json"))
	do(t, j, &note{Name: "a"})
	if _, err := j.Undo(false); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// What the journal says is done with our rights, so only a file that is ours alone counts.
func TestRefusesWhatIsNotItsOwn(t *testing.T) {
	good := []byte(`[{"kind":"note","change":{"name":"a"}}]`)
	for name, prepare := range map[string]func(file string) error{
		"others can write": func(file string) error {
			return errors.Join(os.WriteFile(file, good, 0o600), os.Chmod(file, 0o622))
		},
		"a link": func(file string) error {
			return errors.Join(os.WriteFile(file+".other", good, 0o600), os.Symlink(file+".other", file))
		},
		"a device":    func(file string) error { return os.Symlink("/dev/null", file) },
		"a directory": func(file string) error { return os.Mkdir(file, 0o700) },
		"too large": func(file string) error {
			return errors.Join(os.WriteFile(file, good, 0o600), os.Truncate(file, 1<<20+1))
		},
		"not JSON":       func(file string) error { return os.WriteFile(file, []byte("rm -rf"), 0o600) },
		"an unknown one": func(file string) error { return os.WriteFile(file, []byte(`[{"kind":"shell","change":{}}]`), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "office.json")
			if err := prepare(file); err != nil {
				t.Fatal(err)
			}
			_, err := Open(file, notes)
			var e *errhint.Error
			if !errors.As(err, &e) || !strings.Contains(e.Hint, "look for notes") {
				t.Errorf("got %v, want an error that says how to undo by hand", err)
			}
		})
	}
}
