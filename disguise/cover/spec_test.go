package cover

import (
	"maps"
	"slices"
	"sync"
	"testing"
)

var registerShared = sync.OnceFunc(func() {
	Register(Kind{Name: "shared", Number: 250, Local: []string{"file", "mine"}, Both: []string{"file"}})
})

func TestShared(t *testing.T) {
	registerShared()
	got := Shared("shared:file=/a/b:prefix=printable", "shared:file=x", "shared", "unknown:file=x")
	if want := []string{"shared:prefix=printable", "shared", "shared", "unknown:file=x"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestNeeded(t *testing.T) {
	registerShared()
	for spec, want := range map[string]string{"shared:file=/a/b:mine=x:prefix=printable": "shared:file=/a/b", "shared:prefix=printable": "", "shared": ""} {
		if got := Needed(spec); got != want {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

func TestParseSpec(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"random": nil, "random:prefix=printable": {"prefix": "printable"}, "embed:trace=voip:loop=no": {"trace": "voip", "loop": "no"},
		"a:b=c=d": {"b": "c=d"},
	} {
		name, args, err := ParseSpec(text)
		if err != nil || name+":" != (text + ":")[:len(name)+1] || !maps.Equal(args, want) {
			t.Errorf("%s: %q, %v, %v", text, name, args, err)
		}
	}
	for _, bad := range []string{"random:", "random:prefix", "random:=x", "random:prefix=", "random:a=1:a=2"} {
		if _, _, err := ParseSpec(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
