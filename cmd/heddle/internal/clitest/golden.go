package clitest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var Update = flag.Bool("update", false, "write the golden files anew")

func Golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *Update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s(go test -update writes it anew)", got, want)
	}
}
