package config

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// document is the text of a file, the places of its values, and its problems.
type document struct {
	file     string
	data     []byte
	places   map[string]place // by key, such as "up[0].via[1]"; "up[0]." is the table's own line
	wrongs   map[string]bool  // keys whose value is of the wrong type: skip further checks
	problems Problems
}

func newDocument(file string, data []byte) document {
	return document{file: file, data: data, places: map[string]place{}, wrongs: map[string]bool{}}
}

// place is a range of the text in bytes. The zero place is the whole file.
type place struct{ offset, length int }

// wrong reports a value of the wrong type.
func (d *document) wrong(key, what, hint string) {
	d.wrongs[key] = true
	d.report(d.places[key], SeverityError, key, what, hint)
}

func (d *document) report(at place, severity, key, what, hint string) {
	p := Problem{File: d.file, Severity: severity, Key: strings.TrimSuffix(key, "."), What: what, Hint: hint}
	if at != (place{}) {
		start := bytes.LastIndexByte(d.data[:at.offset], '\n') + 1
		end := len(d.data)
		if n := bytes.IndexByte(d.data[at.offset:], '\n'); n >= 0 {
			end = at.offset + n
		}
		p.Line = bytes.Count(d.data[:start], []byte{'\n'}) + 1
		p.Column = utf8.RuneCount(d.data[start:at.offset]) + 1
		p.line = secretWord.ReplaceAllString(strings.TrimSuffix(string(d.data[start:end]), "\r"), "$1 = (not shown)")
		p.width = utf8.RuneCount(d.data[at.offset:min(at.offset+at.length, end)])
	}
	d.problems = append(d.problems, p)
}

// offset converts a line and a byte column, both from 1, to an offset.
func (d *document) offset(line, column int) int {
	at := 0
	for ; line > 1; line-- {
		n := bytes.IndexByte(d.data[at:], '\n')
		if n < 0 {
			return len(d.data)
		}
		at += n + 1
	}
	return min(at+max(column-1, 0), len(d.data))
}

// sorted returns the problems by line, with those of the whole file first.
func (d *document) sorted() Problems {
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.problems
}

// Secrets do not belong in the file. If a line has one, messages do not show it.
var secretWord = regexp.MustCompile(`(?i)\b((?:private|preshared|secret|password|passphrase|token)[a-z_-]*)(?:\s*=.*)?`)

// nearest returns a known word within one edit for each three letters, or "".
func nearest(word string, known []string) string {
	best, distance := "", min(len(word)/3, 2)+1
	for _, k := range known {
		if n := edits(word, k); n < distance {
			best, distance = k, n
		}
	}
	return best
}

// edits is the Levenshtein distance in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
