package cli

import (
	"testing"
	"time"
)

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Quantity(999), "999"}, {Quantity(1000), "1.0k"}, {Quantity(99_949), "99.9k"}, {Quantity(99_950), "100k"},
		{Quantity(999_499), "999k"}, {Quantity(999_500), "1.0M"}, {Quantity(1_000_000), "1.0M"},
		{Quantity(1<<64 - 1), "18.4E"},
		{Size(0), "0B"}, {Size(1500), "1.5kB"}, {Size(90_511_240), "90.5MB"},
		{Percent(0), "0%"}, {Percent(0.001), "<1%"}, {Percent(0.999), ">99%"}, {Percent(1), "100%"}, {Percent(0.334), "33%"},
		{RTT(0), "-"}, {RTT(900 * time.Microsecond), "0.9ms"}, {RTT(12_500_000), "13ms"}, {RTT(2 * time.Second), "2000ms"},
		{Span(-time.Second), "0.0s"}, {Span(59 * time.Second), "59s"}, {Span(3601 * time.Second), "1h00m"}, {Span(49 * time.Hour), "2d01h"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}
