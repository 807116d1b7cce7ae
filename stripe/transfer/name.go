package transfer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"heddle/internal/text"
)

// PartSuffix ends the name of an incomplete file.
const PartSuffix = ".part"

const (
	maxName      = 1024 // bytes
	maxComponent = 255 - len(PartSuffix)
)

// CheckName returns why a received file may not have a name, or "". A name is relative and slash-separated. No part is "."
// or "..", begins with a dot unless hidden is set, or has unprintable characters.
func CheckName(name string, hidden bool) (why string) {
	switch {
	case name == "":
		return "it has no name"
	case len(name) > maxName:
		return fmt.Sprintf("its name has %d bytes, more than %d", len(name), maxName)
	case !utf8.ValidString(name):
		return "its name is not UTF-8"
	case strings.HasSuffix(name, PartSuffix):
		return "its name ends in " + PartSuffix + ", as those of unfinished files do"
	}
	for _, r := range name {
		if !unicode.IsPrint(r) || r == '\\' {
			return fmt.Sprintf("its name holds the character %U", r)
		}
	}
	for component := range strings.SplitSeq(name, "/") {
		switch {
		case component == "" || component == "." || component == "..":
			return "its name leads elsewhere"
		case len(component) > maxComponent:
			return fmt.Sprintf("a part of its name has %d bytes, more than %d", len(component), maxComponent)
		case component[0] == '.' && !hidden:
			return "its name begins with a dot"
		}
	}
	return ""
}

// printable makes the other side's text one short line.
func printable(said string) string {
	const longest = 300
	return text.Printable(said[:min(len(said), longest)])
}
