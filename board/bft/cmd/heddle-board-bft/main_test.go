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
