package config

import (
	"fmt"
	"slices"
	"strings"

	"heddle/internal/text"
)

// Problem is one error or warning in a file.
type Problem struct {
	File     string `json:"file"`
	Line     int    `json:"line"`   // from 1; 0 for the whole file
	Column   int    `json:"column"` // in characters, from 1
	Severity string `json:"severity"`
	Key      string `json:"key,omitempty"` // such as "up[0].via[1]"
	What     string `json:"what"`
	Hint     string `json:"hint,omitempty"`

	line  string // text of the line
	width int    // of the wrong part, in characters
}

// The severities: an error keeps the file from being used, a warning does not.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// String formats it as FILE:LINE:COLUMN: SEVERITY: WHAT.
func (p Problem) String() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", p.File, p.Severity, p.What)
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", p.File, p.Line, p.Column, p.Severity, p.What)
}

// Excerpt returns the line and a caret line under the problem, or "" without a line.
func (p Problem) Excerpt() string {
	if p.Line == 0 {
		return ""
	}
	number := fmt.Sprintf("%5d | ", p.Line)
	runes, column := window([]rune(p.line), p.Column-1, p.width)
	// A tab before the caret stays a tab, so that the caret is aligned at any tab width.
	lead := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string(runes[:min(column, len(runes))]))
	width := max(1, min(p.width, len(runes)-column))
	return fmt.Sprintf("%s%s\n      | %s%s\n", number, text.Printable(string(runes), '\t'), lead, strings.Repeat("^", width))
}

// lineColumns is how much of a line fits 80 columns with its number: a wrapped line would misplace the caret.
const lineColumns = 72

// window cuts a long line around the place, and returns the place in it.
func window(line []rune, column, width int) ([]rune, int) {
	if len(line) <= lineColumns {
		return line, column
	}
	from := 0
	if column+width > lineColumns-4 {
		from = max(0, min(column-20, len(line)-lineColumns))
	}
	shown := slices.Clone(line[from:min(len(line), from+lineColumns)])
	if from > 0 {
		copy(shown, []rune("..."))
	}
	if from+len(shown) < len(line) {
		copy(shown[len(shown)-3:], []rune("..."))
	}
	return shown, column - from
}

// Problems are all problems of a file, by line.
type Problems []Problem

// Error formats one problem a line, with its hint.
func (ps Problems) Error() string {
	var lines []string
	for _, p := range ps {
		line := p.String()
		if p.Hint != "" {
			line += " (" + p.Hint + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// HintText names the command that shows more.
func (ps Problems) HintText() string {
	if len(ps) == 0 {
		return ""
	}
	return "`heddle check " + ps[0].File + "` shows each place"
}

// Errors returns the problems without the warnings.
func (ps Problems) Errors() Problems {
	return slices.DeleteFunc(slices.Clone(ps), func(p Problem) bool { return p.Severity != SeverityError })
}
