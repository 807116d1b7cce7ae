package path

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestParseSpec(t *testing.T) {
	for _, c := range []struct{ text, name, kind, arg, why string }{
		{text: "home=if:eth0", name: "home", kind: "if", arg: "eth0"},
		{text: "a=src:192.0.2.7", name: "a", kind: "src", arg: "192.0.2.7"},
		{text: "a=src:2001:db8::7", name: "a", kind: "src", arg: "2001:db8::7"},
		{text: "hop=ports:eth0", name: "hop", kind: "ports", arg: "eth0"},
		{text: "", why: "no name"},
		{text: "if:eth0", why: "no name"},
		{text: "=if:eth0", why: "no name for a path"},
		{text: "../x=if:eth0", why: "no name for a path"},
		{text: "home=eth0", why: "no kind"},
		{text: "home=if:", why: "no argument"},
		{text: "home=carrier-pigeon:1", why: "no kind of path"},
	} {
		s, err := ParseSpec(c.text)
		if c.why != "" {
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(e.Why, c.why) || e.Hint == "" {
				t.Errorf("%q: error %v, want one with %q and a hint", c.text, err, c.why)
			}
			continue
		}
		if err != nil || s != (Spec{Name: c.name, Kind: c.kind, Arg: c.arg}) || s.String() != c.text {
			t.Errorf("%q: %+v, %v", c.text, s, err)
		}
	}
}

func TestArgumentsThatCanNeverWork(t *testing.T) {
	for _, text := range []string{"a=if:a-name-that-is-too-long", "a=if:et h0", "a=src:eth0", "a=src:0.0.0.0", "a=src:224.0.0.1", "a=src:fe80::1%eth0"} {
		s, err := ParseSpec(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if _, err := New(s, Options{}); err == nil {
			t.Errorf("%q made a path", text)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{"home=if:eth0", "a=src:::1", "=", "a=:", "a=if:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSpec(text)
		if err != nil {
			return
		}
		if s.String() != text {
			t.Errorf("%q came back as %q", text, s)
		}
		New(s, Options{})
	})
}

func mustAddrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
