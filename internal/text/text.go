// Package text formats sizes, shares, numbers and untrusted texts for people, the same way in all commands.
package text

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type integer interface {
	~int | ~int64 | ~uint | ~uint64
}

// Size formats a number of bytes in powers of 1000, with one decimal place: 812 B, 45.1 MB.
func Size[N integer](n N) string {
	const step = 1000
	if n < step {
		return fmt.Sprint(n) + " B"
	}
	const units = "kMGTPE"
	value, unit := float64(n)/step, 0
	for value >= step-0.05 && unit < len(units)-1 {
		value, unit = value/step, unit+1
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + units[unit:unit+1] + "B"
}

// Percent formats a share with one decimal place: 38.0 %. It never rounds to 0 or 100: <0.1 %, >99.9 %.
func Percent(share float64) string {
	switch {
	case share > 0 && share < 0.0005:
		return "<0.1 %"
	case share < 1 && share >= 0.9995:
		return ">99.9 %"
	}
	return strconv.FormatFloat(share*100, 'f', 1, 64) + " %"
}

// Quantity formats a number in at most five characters, for tables: 812, 33.1k, 4.2M.
func Quantity[N integer](n N) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	const units = "kMGTPE"
	value, unit := float64(n)/1000, 0
	for value >= 999.5 && unit < len(units)-1 {
		value, unit = value/1000, unit+1
	}
	digits := 1
	if value >= 99.95 {
		digits = 0
	}
	return strconv.FormatFloat(value, 'f', digits, 64) + units[unit:unit+1]
}

// Count formats a number and a noun in agreement: 1 error, 2 errors.
func Count[N integer](n N, noun string) string { return fmt.Sprint(n) + " " + plural(n, noun) }

// About is [Count] with the number formatted by [Quantity]: 1 switch, 33.1k switches.
func About[N integer](n N, noun string) string { return Quantity(n) + " " + plural(n, noun) }

func plural[N integer](n N, noun string) string {
	switch {
	case n == 1:
		return noun
	case strings.HasSuffix(noun, "s"), strings.HasSuffix(noun, "ch"), strings.HasSuffix(noun, "sh"):
		return noun + "es"
	}
	return noun + "s"
}

// Printable makes a stranger's text safe for the terminal. It replaces unprintable characters except those of keep, and
// bytes that are not UTF-8, by question marks.
func Printable(stranger string, keep ...rune) string {
	return strings.Map(func(r rune) rune {
		if slices.Contains(keep, r) || r != utf8.RuneError && unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, stranger)
}

// units of bytes: decimal of SI, binary of IEC 80000-13.
var units = map[string]float64{"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}

// ParseSize parses 500MB, 10GiB or 1048576.
func ParseSize(text string) (int64, error) {
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit, known := units[strings.ToLower(strings.TrimSpace(text[len(number):]))]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !known || !(n >= 0 && n*unit < 1<<62) {
		return 0, fmt.Errorf("%q is no number of bytes: write 500MB, 10GiB or 1048576", text)
	}
	return int64(n * unit), nil
}
