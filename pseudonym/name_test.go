package pseudonym

import (
	"strings"
	"testing"
)

func TestLabels(t *testing.T) {
	seen := map[Label]bool{}
	for range 1000 {
		l := NewLabel()
		if len(l) != labelChars || !IsLabel(string(l)) || seen[l] {
			t.Fatalf("label %q", l)
		}
		seen[l] = true
	}
	for _, not := range []string{"", "www", strings.Repeat("a", 25), strings.Repeat("a", 27), strings.Repeat("a", 25) + "b", strings.Repeat("A", 26), strings.Repeat("1", 26)} {
		if IsLabel(not) {
			t.Errorf("%q is a label", not)
		}
	}
}

func TestZone(t *testing.T) {
	z, err := ParseZone("Cloud.Example.")
	if err != nil || z != "cloud.example" {
		t.Fatalf("%q, %v", z, err)
	}
	l := NewLabel()
	for _, name := range []string{z.Name(l), z.Name(l) + ".", strings.ToUpper(z.Name(l))} {
		if got, ok := z.Label(name); !ok || got != l {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "cloud.example", "www.cloud.example", string(l), string(l) + ".other.example", "a." + z.Name(l), string(l) + "cloud.example"} {
		if got, ok := z.Label(name); ok {
			t.Errorf("%s is the pseudonym %s", name, got)
		}
	}
	if _, err := ParseZone("cloud"); err == nil {
		t.Error("a zone without a dot")
	}
}

func TestHosts(t *testing.T) {
	for text, want := range map[string]string{
		"WWW.Example.com":  "www.example.com",
		" example.com. ":   "example.com",
		"bücher.example":   "xn--bcher-kva.example",
		"日本語.example":      "xn--wgv71a119e.example",
		"пример.example":   "xn--e1afmkfd.example",
		"a-1.example":      "a-1.example",
		"xn--bcher-kva.de": "xn--bcher-kva.de",
		"3com.example":     "3com.example",
	} {
		if got, err := ParseHost(text); err != nil || got != want {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ".", "*.example.com", "https://example.com", "example.com/", "example.com:443", "user@example.com", "192.0.2.1", "[::1]",
		"a..b", "exаmple.com" /* Cyrillic a */, "раураӏ.com" /* Cyrillic only */, "xn--80ak6aa92e.com" /* the same, encoded */, "gοοgle.com", /* Greek o */
		"example.com\x00", "-a.example", strings.Repeat("a", 64) + ".example", "a b.example", "a_b.example", "\xff.example"} {
		if got, err := ParseHost(text); err == nil {
			t.Errorf("%q is %q", text, got)
		}
	}
}
