package cli

import "testing"

func TestFolded(t *testing.T) {
	for _, c := range []struct {
		name, text string
		width      int
		want       string
	}{
		{"no bound", "one two three\n", 0, "one two three\n"},
		{"fits", "one two\n", 7, "one two\n"},
		{"below the last column", "  tun  yes  one two three\n", 20, "  tun  yes  one two\n            three\n"},
		{"several times", "  - aa bb cc dd\n", 8, "  - aa\n  bb cc\n  dd\n"},
		{"a word too long", "  aaaaaaaaaaaa bb\n", 8, "  aaaaaaaaaaaa bb\n"},
		{"counts characters", "äö äö äö\n", 5, "äö äö\näö\n"},
		{"lines", "a\n\nb\n", 5, "a\n\nb\n"},
	} {
		if got := Folded(c.text, c.width); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
