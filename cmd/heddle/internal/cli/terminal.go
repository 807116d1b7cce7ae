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

// TerminalWidth is how many columns the terminal behind w has, 0 where w is none.
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

// The last column of a line that is laid out in columns begins after the last run of two spaces.
var lastColumn = regexp.MustCompile(`^.*  `)

// Folded breaks lines at spaces, so that none is longer than width where its words allow it, and goes on below where
// the line's last column began. A width of 0 leaves all as it is.
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
