package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/board"
)

func call(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "board")
	code, out, errs := call("init", "--dir", dir, "--hosts", "a.example,b.example,c.example,192.0.2.4")
	if code != 0 || !strings.Contains(out, "b.example:7300") || !strings.Contains(out, "1 of 4 replicas may lie") {
		t.Fatalf("%d\n%s%s", code, out, errs)
	}
	reference, err := board.LoadReference(filepath.Join(dir, "board.json"))
	if err != nil || len(reference.Replicas) != 4 || reference.Faults != 1 {
		t.Errorf("%+v, %v", reference, err)
	}
	if code, _, errs = call("init", "--dir", dir); code != exitFailure || !strings.Contains(errs, "hint:") {
		t.Errorf("a second time: %d\n%s", code, errs)
	}
	code, out, _ = call("init", "--dir", filepath.Join(t.TempDir(), "seven"), "--replicas", "7", "--json")
	if err := json.Unmarshal([]byte(out), &reference); code != 0 || err != nil || reference.Faults != 2 {
		t.Errorf("seven: %d, %v\n%s", code, err, out)
	}
}

func TestMistakes(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"init --dir x --replicas 4 --hosts a,b", exitUsage, "2 machines for 4 replicas"},
		{"init --dir x --member nobody", exitUsage, "--member"},
		{"init --dir x --nonsense", exitUsage, "nonsense"},
		{"init --dir x --replicas 5", exitFailure, "3f+1"},
		{"init --dir x --max-op 1", exitFailure, "limits of the board"},
		{"run", exitUsage, `"home" not set`},
		{"run there --home x", exitUsage, "unknown command"},
		{"rnu", exitUsage, "unknown command"},
		{"man", exitUsage, "at least one"},
		{"run --home " + empty, exitFailure, "no file of a replica"},
		{"status --home " + empty, exitFailure, "no file of a replica"},
	} {
		code, _, errs := call(strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%s: %d\n%s", c.args, code, errs)
		}
	}
	if _, err := os.Stat("x"); err == nil {
		t.Error("a mistake left homes behind")
	}
}

func TestHelpAndPages(t *testing.T) {
	dir := t.TempDir()
	if code, _, errs := call("man", "--dir", dir, "--reference", filepath.Join(dir, "reference.md")); code != 0 {
		t.Fatal(code, errs)
	}
	reference, err := os.ReadFile(filepath.Join(dir, "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "init", "run", "status"} {
		code, help, _ := call(append(strings.Fields(name), "--help")...)
		for _, want := range []string{"Examples:\n  heddle-board-bft ", "Exit codes:\n  0  It worked.", "\n  2  The command line"} {
			if code != 0 || !strings.Contains(help, want) {
				t.Errorf("%s --help: %d, lacks %q", name, code, want)
			}
		}
		for line := range strings.Lines(help) {
			if len(line) > 81 && !strings.HasPrefix(line, "  heddle-board-bft") && !strings.HasPrefix(line, "      --") {
				t.Errorf("%s --help: %d columns: %s", name, len(line)-1, line)
			}
		}
		page, err := os.ReadFile(filepath.Join(dir, strings.TrimSuffix("heddle-board-bft-"+name, "-")+".1"))
		if err != nil || !bytes.Contains(page, []byte(".SH EXAMPLE")) {
			t.Errorf("the page of %q: %v", name, err)
		}
		if !bytes.Contains(reference, []byte(strings.TrimSpace("## heddle-board-bft "+name)+"\n")) {
			t.Errorf("the reference lacks %q", name)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "heddle-board-bft.1"))
	if err != nil || !bytes.Contains(page, []byte("EXIT CODES")) || !bytes.Contains(page, []byte("FILES")) {
		t.Errorf("heddle-board-bft(1): %v\n%s", err, page)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, out, errs := call("completion", shell); code != 0 || !strings.Contains(out, "heddle-board-bft") {
			t.Errorf("%s: %d, %s", shell, code, errs)
		}
	}
	for typed, want := range map[string]string{"": "init\t", "init --replicas ": "7\n", "run --": "--home\t", "init --member ": ":4\n", "run --home ": ":16\n"} {
		words := append([]string{"__complete"}, strings.Split(typed, " ")...)
		if code, out, errs := call(words...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%q completes to %d, %s%s", typed, code, out, errs)
		}
	}
}
