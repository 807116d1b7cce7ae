package runner

import (
	"strings"
	"testing"

	"heddle/path"
	"heddle/split"
)

func TestTellDead(t *testing.T) {
	var out strings.Builder
	o := split.Options{Via: []path.Spec{{Name: "home", Kind: "src", Arg: "127.0.0.1"}, {Name: "lte", Kind: "if", Arg: "nodevice0"}}}
	if err := TellDead(&out, o); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "warning: path lte cannot send now: no device is called nodevice0\n") || strings.Contains(got, "home") {
		t.Errorf("got %q", got)
	}
}
