package text

import "testing"

func TestSpelling(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Size(0), "0 B"}, {Size(999), "999 B"}, {Size(1000), "1.0 kB"}, {Size(1500), "1.5 kB"}, {Size(999_949), "999.9 kB"},
		{Size(999_950), "1.0 MB"}, {Size(45_123_456), "45.1 MB"}, {Size(uint64(1<<64 - 1)), "18.4 EB"}, {Size(-5), "-5 B"},
		{Percent(0), "0.0 %"}, {Percent(0.0004), "<0.1 %"}, {Percent(0.0005), "0.1 %"}, {Percent(0.38), "38.0 %"},
		{Percent(0.9994), "99.9 %"}, {Percent(0.9996), ">99.9 %"}, {Percent(1), "100.0 %"},
		{Quantity(999), "999"}, {Quantity(1000), "1.0k"}, {Quantity(99_949), "99.9k"}, {Quantity(99_950), "100k"},
		{Quantity(999_499), "999k"}, {Quantity(999_500), "1.0M"}, {Quantity(uint64(1<<64 - 1)), "18.4E"},
		{Count(1, "error"), "1 error"}, {Count(0, "error"), "0 errors"}, {Count(12345, "pass"), "12345 passes"},
		{About(1, "switch"), "1 switch"}, {About(uint64(33_100), "switch"), "33.1k switches"},
		{Printable("ü \x1b[2J\x00\u202e\ttab\n"), "ü ?[2J??" + "?tab?"}, {Printable("a\tb\nc", '\t'), "a\tb?c"}, {Printable("\xff\ufffd"), "??"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
