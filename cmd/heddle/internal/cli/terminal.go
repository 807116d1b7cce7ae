package cli

import (
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// IsTerminal reports whether an input or output is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// TerminalWidth is the terminal's width in columns; 0 if w is no terminal.
func TerminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// The last column of a table line begins after the last run of two spaces.
var lastColumn = regexp.MustCompile(`^.*  `)

// Folded breaks lines at spaces to fit width, if their words allow it. Continuation lines start below the line's last
// column. Width 0 changes nothing.
func Folded(text string, width int) string {
	if width <= 0 {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		indent := utf8.RuneCountInString(lastColumn.FindString(line))
		if indent > width*2/3 {
			indent = 4
		}
		for utf8.RuneCountInString(line) > width {
			runes := []rune(line)
			at := width
			for at > indent && runes[at] != ' ' {
				at--
			}
			if at <= indent {
				break
			}
			b.WriteString(strings.TrimRight(string(runes[:at]), " ") + "\n")
			line = strings.Repeat(" ", indent) + string(runes[at+1:])
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
