package run

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
)

func TestNamedWriter(t *testing.T) {
	var out bytes.Buffer
	var writing sync.Mutex
	a := &namedWriter{name: "a", to: &out, writing: &writing}
	b := &namedWriter{to: &out, writing: &writing}
	fmt.Fprint(a, "one ")
	fmt.Fprint(b, "two\n")
	fmt.Fprint(a, "line\na is named\nrest")
	if got, want := out.String(), "two\na: one line\na is named\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
