package cli

import (
	"fmt"
	"strconv"
	"time"
)

// AgeText formats a duration in its largest whole unit.
func AgeText(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s" // a clock is ahead
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// OrDash replaces an empty table cell by a dash.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// RTT formats a round trip in milliseconds, or a dash if unknown.
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

// Heard formats how long ago something arrived.
func Heard(at *time.Time, now time.Time) string {
	if at == nil {
		return "never"
	}
	return Span(now.Sub(*at)) + " ago"
}

// Span formats a duration in its two largest units.
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
