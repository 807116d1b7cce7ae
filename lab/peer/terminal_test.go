package peer

import "testing"

func TestWholeRunes(t *testing.T) {
	for _, c := range []struct {
		text string
		want int
	}{{"", 0}, {"abc", 3}, {"é", 2}, {"a\xc3", 1}, {"✓", 3}, {"a✓b\xe2\x9c", 5}, {"a\xf0\x9f\x98", 1}, {"\xff\xff", 2}, {"\x80\x80\x80\x80", 4}} {
		if got := wholeRunes([]byte(c.text)); got != c.want {
			t.Errorf("%q: %d bytes, want %d", c.text, got, c.want)
		}
	}
}
