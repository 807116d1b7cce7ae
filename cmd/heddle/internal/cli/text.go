package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// AgeText is a length of time in its largest whole unit.
func AgeText(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s" // somebody's clock is ahead
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// OrDash is text for a cell of a table, which is never empty.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Count says how many, in words that agree: "1 error", "2 errors".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// RTT gives a round trip in milliseconds, or a dash where none is known.
func RTT(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + "ms"
	default:
		return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + "ms"
	}
}

// Percent rounds to whole percents, but never something to nothing nor a part to all.
func Percent(share float64) string {
	switch {
	case share > 0 && share < 0.005:
		return "<1%"
	case share < 1 && share >= 0.995:
		return ">99%"
	}
	return strconv.FormatFloat(share*100, 'f', 0, 64) + "%"
}

// Quantity gives a count in at most five characters: 812, 33.1k, 4.2M.
func Quantity(n uint64) string {
	if n < 1000 {
		return strconv.FormatUint(n, 10)
	}
	return scaled(float64(n), "kMGTPE")
}

// Size gives bytes in powers of 1000, as `ip -s -h` does: 512B, 45.1MB.
func Size(n uint64) string {
	if n < 1000 {
		return strconv.FormatUint(n, 10) + "B"
	}
	return scaled(float64(n), "kMGTPE") + "B"
}

func scaled(n float64, units string) string {
	unit := 0
	for n /= 1000; n >= 999.5 && unit < len(units)-1; unit++ {
		n /= 1000
	}
	digits := 1
	if n >= 99.95 {
		digits = 0
	}
	return strconv.FormatFloat(n, 'f', digits, 64) + units[unit:unit+1]
}

// Heard says how long ago something came.
func Heard(at *time.Time, now time.Time) string {
	if at == nil {
		return "never"
	}
	return Span(now.Sub(*at)) + " ago"
}

// Span gives a time in its two largest units.
func Span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Plural says how many, in words that agree: "1 switch", "33.1k switches".
func Plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Quantity(n) + " " + many
}

// Plain keeps what another process says from sending escape sequences to the terminal.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
