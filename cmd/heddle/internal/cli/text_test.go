package cli

import (
	"testing"
	"time"
)

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{RTT(0), "-"}, {RTT(900 * time.Microsecond), "0.9ms"}, {RTT(12_500_000), "13ms"}, {RTT(2 * time.Second), "2000ms"},
		{Span(-time.Second), "0.0s"}, {Span(59 * time.Second), "59s"}, {Span(3601 * time.Second), "1h00m"}, {Span(49 * time.Hour), "2d01h"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}
