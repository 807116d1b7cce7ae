// Package bpftest has the tests of packages with BPF programs. Do not import it outside tests.
package bpftest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// compiler is the version of clang that `make bpf` was last run with. Others may give other instructions.
const compiler = "14.0.6"

// Generated fails unless the files that bpf2go made in the test's directory are what the sources there give, by the command in generate.go.
func Generated(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"clang", "llvm-strip", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	if out, err := exec.Command("clang", "--version").Output(); err != nil || !strings.Contains(string(out), "version "+compiler) {
		t.Skipf("clang is not %s: %s (%v)", compiler, out, err)
	}
	source, err := os.ReadFile("generate.go")
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(source), "//go:generate ")
	_, name, _ := strings.Cut(string(source), "package ")
	name, _, _ = strings.Cut(name, "\n")
	dir := t.TempDir()
	generate := exec.Command("sh", "-c", strings.Replace(command, "go tool bpf2go", "go tool bpf2go -output-dir '"+dir+"'", 1))
	generate.Env = append(os.Environ(), "GOPACKAGE="+name)
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(made) != 4 { // an object and its Go file, for each order of bytes
		t.Fatalf("it made %q, %v", made, err)
	}
	for _, file := range made {
		now, err1 := os.ReadFile(file)
		before, err2 := os.ReadFile(filepath.Base(file))
		if err := errors.Join(err1, err2); err != nil || !bytes.Equal(now, before) {
			t.Errorf("%s is not what its source gives: run `make bpf` (%v)", filepath.Base(file), err)
		}
	}
}

// Objects fails unless there is an object of a name for both orders of bytes, each with exactly the programs.
func Objects(t *testing.T, name string, programs ...string) {
	t.Helper()
	for file, order := range map[string]binary.ByteOrder{name + "_bpfel.o": binary.LittleEndian, name + "_bpfeb.o": binary.BigEndian} {
		object, err := ebpf.LoadCollectionSpec(file)
		if err != nil {
			t.Fatal(err)
		}
		if object.ByteOrder != order || len(object.Programs) != len(programs) {
			t.Errorf("%s: %v, programs %v", file, object.ByteOrder, object.Programs)
		}
		for _, p := range programs {
			if object.Programs[p] == nil {
				t.Errorf("%s has no program %s", file, p)
			}
		}
	}
}
