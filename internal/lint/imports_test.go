package lint

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The rooms of the house, by what they may know of. A package belongs to the room of its first directory.
var planes = []string{"split", "stripe", "overlay", "disguise", "pseudonym"}

// What runs the binary, and the binary: nothing that is linked into it may need them.
var (
	engine  = []string{"lab", "experiments", "e2e"}
	drivers = append([]string{"cmd"}, engine...)
)

// Imports run one way: cmd > config > planes > proxy, identity, schedule, observe > path > internal. A rule says what a
// room may not import.
var rules = []struct {
	rooms  []string
	banned []string // rooms, or packages from elsewhere
	why    string
}{
	{[]string{"internal"}, slices.Concat(planes, drivers, []string{"path", "proxy", "identity", "schedule", "observe", "config"}),
		"internal holds what several rooms need, so it can need none of them"},
	{[]string{"path"}, slices.Concat(planes, drivers, []string{"proxy", "identity", "schedule", "observe", "config"}),
		"path is the narrow waist: every plane stands on it, so it can stand on none of them"},
	{[]string{"schedule"}, slices.Concat(planes, drivers, []string{"path", "observe", "config"}),
		"a schedule is numbers in, numbers out: it is tested by its statistics, without a network"},
	{[]string{"schedule"}, []string{"os", "net", "io", "net/netip", "context"},
		"a schedule does no I/O"},
	{[]string{"observe"}, slices.Concat(planes, drivers, []string{"schedule", "config"}),
		"what an observer saw is computed from captures, not from the word of the plane that sent it"},
	{planes, append([]string{"config"}, drivers...),
		"a plane takes values, so that it serves a flag, a file and a test alike"},
	{[]string{"proxy", "identity"}, slices.Concat(planes, drivers, []string{"schedule", "config"}),
		"planes and nodes stand on servers and keys, not the other way round"},
	{[]string{"board"}, slices.Concat(planes, drivers, []string{"schedule", "observe", "config"}),
		"planes find each other by the board through cmd, so it knows none of them"},
	{slices.Concat(planes, engine, []string{"path", "schedule", "observe"}), []string{"board"},
		"cmd asks the board and gives planes what it said, so that they work without one"},
	{[]string{"config"}, drivers,
		"config reads what people write; it starts nothing"},
	{[]string{"lab"}, []string{"experiments", "e2e"},
		"lab is the engine that experiments and world tests drive"},
	{[]string{"experiments", "cmd"}, []string{"e2e"},
		"world tests are the end of the line"},
	{engine, slices.Concat(planes, []string{"schedule", "config", "cmd"}),
		"an experiment that starts the binary proves what people run; one that calls the plane proves something else"},
	{slices.Concat(planes, []string{"path", "schedule", "observe", "config"}), []string{"github.com/spf13/cobra"},
		"commands and flags are the edge's: they live in cmd"},
	{slices.Concat(planes, []string{"path", "schedule", "observe", "lab", "experiments", "cmd"}), []string{"github.com/pelletier/go-toml"},
		"files of settings are read in one place, config, so that their errors look alike"},
	{slices.Concat(planes, engine, []string{"internal", "path", "proxy", "identity", "schedule", "observe", "config", "board", "cmd"}), []string{"text/template", "html/template"},
		"a template calls methods by name, so the linker keeps all methods of all types in the binary: write pages with internal/markup"},
}

// Planes never import each other: cmd joins them through path.
const planesWhy = "where one plane offers a way out it is a kind of path, so that no plane knows of another"

type goPackage struct {
	ImportPath, Dir, Name, Doc         string
	Imports, TestImports, XTestImports []string
	GoFiles                            []string
}

// modules are the directories of Go modules: one for Heddle, and one for what would bring hundreds of modules along.
var modules = []string{root, root + "/board/bft"}

func packages(t *testing.T) (all []goPackage) {
	t.Helper()
	for _, dir := range modules {
		all = append(all, packagesIn(t, dir)...)
	}
	if len(all) < 5 {
		t.Fatalf("only %d packages: is this the root of the tree?", len(all))
	}
	return all
}

func packagesIn(t *testing.T, dir string) (all []goPackage) {
	t.Helper()
	list := exec.Command("go", "list", "-json=ImportPath,Dir,Name,Doc,Imports,TestImports,XTestImports,GoFiles", "./...")
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			t.Fatalf("go list: %v\n%s", err, failed.Stderr)
		}
		t.Fatal(err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// room gives the first directory of a package of this module, and the package itself for any other.
func room(importPath string) string {
	inside, ours := strings.CutPrefix(importPath, "heddle/")
	if !ours {
		return importPath
	}
	first, _, _ := strings.Cut(inside, "/")
	return first
}

// broken gives why an import is banned, or nothing.
func broken(from, to string) string {
	here, there := room(from), room(to)
	if slices.Contains(planes, here) && slices.Contains(planes, there) && here != there {
		return planesWhy
	}
	for _, rule := range rules {
		if !slices.Contains(rule.rooms, here) {
			continue
		}
		for _, banned := range rule.banned {
			if there == banned || strings.HasPrefix(there, banned+"/") && strings.Contains(banned, ".") {
				return rule.why
			}
		}
	}
	return ""
}

// Tests of a plane may build worlds with lab, which starts the binary and so closes no circle. Tests below path may use any
// room: nothing can import them.
func mayInTest(from, to string) bool {
	return room(from) == "internal" || room(to) == "lab"
}

func TestImportsRunOneWay(t *testing.T) {
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			if why := broken(p.ImportPath, imported); why != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, imported, why)
			}
		}
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			if why := broken(p.ImportPath, imported); why != "" && !mayInTest(p.ImportPath, imported) {
				t.Errorf("a test of %s imports %s: %s", p.ImportPath, imported, why)
			}
		}
	}
}

// What a package whose name ends in test holds is for tests: it panics, skips, and ends with them.
func TestHelpersOfTestsStayInTests(t *testing.T) {
	ofTests := func(importPath string) bool {
		return strings.HasPrefix(importPath, "heddle/") && strings.HasSuffix(importPath, "test")
	}
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			if ofTests(imported) && !ofTests(p.ImportPath) {
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, imported)
			}
		}
	}
}

// The rules themselves: what they must forbid, and what they must not.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		from, to string
		banned   bool
	}{
		{"heddle/path", "heddle/split", true},
		{"heddle/path", "heddle/schedule", true},
		{"heddle/schedule", "net", true},
		{"heddle/schedule", "time", false},
		{"heddle/observe/plot", "heddle/split/tunnel", true},
		{"heddle/observe", "heddle/path", false},
		{"heddle/split", "heddle/stripe", true},
		{"heddle/stripe", "heddle/board/registry", true},
		{"heddle/board", "heddle/identity", false},
		{"heddle/split/tunnel", "heddle/path/wgconf", false},
		{"heddle/split", "heddle/cmd/heddle/internal/control", true},
		{"heddle/board/registry", "heddle/overlay/node", true},
		{"heddle/board/bft", "heddle/lab", true},
		{"heddle/config", "heddle/split", false},
		{"heddle/config", "heddle/lab", true},
		{"heddle/lab/peer", "heddle/split", true},
		{"heddle/lab/peer", "heddle/observe", false},
		{"heddle/lab/peer", "heddle/experiments/bench", true},
		{"heddle/experiments/bench", "heddle/stripe", true},
		{"heddle/experiments/bench", "heddle/lab", false},
		{"heddle/split", "heddle/experiments/bench", true},
		{"heddle/cmd/heddle", "heddle/lab", false},
		{"heddle/cmd/heddle", "heddle/e2e/faults", true},
		{"heddle/split", "github.com/spf13/cobra", true},
		{"heddle/split", "github.com/pelletier/go-toml/v2", true},
		{"heddle/config", "github.com/pelletier/go-toml/v2", false},
	} {
		if got := broken(c.from, c.to) != ""; got != c.banned {
			t.Errorf("%s > %s: banned %v, want %v", c.from, c.to, got, c.banned)
		}
	}
}

func TestEveryPackageExplainsItself(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) == 0 {
			continue // tests only
		}
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(p.Doc, want) {
			t.Errorf("%s: its doc comment starts with %q, not with %q", p.ImportPath, p.Doc, want)
		}
	}
}

func TestEveryPackageHasARoom(t *testing.T) {
	rooms := slices.Concat(planes, []string{"cmd", "config", "path", "schedule", "board", "proxy", "identity", "observe", "lab", "experiments", "e2e", "web", "eval", "internal"})
	for _, p := range packages(t) {
		if !slices.Contains(rooms, room(p.ImportPath)) {
			t.Errorf("%s is in no room", p.ImportPath)
		}
	}
}
