package lint

import (
	"bytes"
	"os"
	"testing"

	"heddle/lab/labtest"
)

// A template calls methods by names that the linker does not know. If one is executed anywhere in the binary, in a dependency too, the
// linker keeps each exported method of each type, and the binary grows by 7 MB.
func TestLinkerLeavesOutMethods(t *testing.T) {
	file, err := labtest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	has := func(function string) bool { return bytes.Contains(binary, []byte(function+"\x00")) }
	if !has("heddle/internal/markup.(*Page).Printf") {
		t.Fatalf("%s does not name its functions", file)
	}
	if has("text/template.(*state).evalField") {
		t.Errorf("%s executes templates: find out by go build -ldflags=-dumpdep which function calls text/template", file)
	}
}
