// Package page replaces the name of a site in the pages that its server sends, while they pass.
package page

import (
	"bytes"
	"io"
	"net/url"
	"strings"

	"golang.org/x/text/transform"
)

// Host replaces one host by another where it follows two slashes, as in URLs, also if a backslash is before each as in JSON.
type Host struct {
	from []byte // in lower case
	to   []byte
	link func(*url.URL) (string, bool) // may be nil
	form func(*url.URL) (string, bool) // may be nil
	open bool                          // scripts of the site change too
}

// NewHost takes names in lower case.
func NewHost(from, to string) *Host { return &Host{from: []byte(from), to: []byte(to)} }

// WithLinks also replaces where links of pages lead, if link says so. Links are what a person follows: elements a and area.
func (h Host) WithLinks(link func(*url.URL) (string, bool)) *Host {
	h.link = link
	return &h
}

// WithForms also replaces where forms of pages send what they ask for, if form says so.
func (h Host) WithForms(form func(*url.URL) (string, bool)) *Host {
	h.form = form
	return &h
}

// WithScripts says that [Host.Text] changes the site's script files too, so that their hashes in pages are not true any more.
func (h Host) WithScripts() *Host {
	h.open = true
	return &h
}

// String replaces in a text.
func (h *Host) String(text string) string {
	out, _, err := transform.String(replacer{h}, text)
	if err != nil {
		return text // it never fails
	}
	return out
}

// Names replaces the host in a text wherever it is a whole name, as in a security policy.
func (h *Host) Names(text string) string {
	var b strings.Builder
	begin := 0 // of what is not copied yet
	for i := 0; i+len(h.from) <= len(text); i++ {
		end := i + len(h.from)
		switch {
		case !strings.EqualFold(text[i:end], string(h.from)),
			i > 0 && (inName(text[i-1]) || text[i-1] == '.'),
			end < len(text) && (inName(text[end]) || text[end] == '.' && end+1 < len(text) && inName(text[end+1])):
			continue
		}
		b.WriteString(text[begin:i])
		b.Write(h.to)
		begin = end
		i = end - 1
	}
	b.WriteString(text[begin:])
	return b.String()
}

// Text replaces in what is read, such as a style sheet.
func (h *Host) Text(r io.Reader) io.Reader { return transform.NewReader(r, replacer{h}) }

// replacer implements [transform.Transformer].
type replacer struct{ *Host }

func (replacer) Reset() {}

// Transform implements [transform.Transformer].
func (r replacer) Transform(dst, src []byte, atEOF bool) (nDst, nSrc int, err error) {
	for nSrc < len(src) {
		rest := src[nSrc:]
		plain, match, with, whole := r.next(rest, atEOF)
		n := copy(dst[nDst:], rest[:plain])
		nDst += n
		nSrc += n
		switch {
		case n < plain:
			return nDst, nSrc, transform.ErrShortDst
		case !whole:
			return nDst, nSrc, transform.ErrShortSrc
		case len(dst)-nDst < len(with):
			return nDst, nSrc, transform.ErrShortDst
		}
		nDst += copy(dst[nDst:], with)
		nSrc += match
	}
	return nDst, nSrc, nil
}

// next returns how many bytes stay as they are, and how many bytes after them, which may be none, with replaces. It is not whole if
// more bytes are needed to tell what follows the plain ones.
func (h *Host) next(b []byte, atEOF bool) (plain, match int, with []byte, whole bool) {
	for i := 0; ; {
		slash := bytes.IndexByte(b[i:], '/')
		if slash < 0 {
			return len(b), 0, nil, true
		}
		i += slash
		host, sure := afterSlashes(b[i:])
		if !sure && !atEOF {
			return i, 0, nil, false
		}
		if host == 0 {
			i++
			continue
		}
		n, sure := h.at(b[i+host:])
		if !sure && !atEOF {
			return i, 0, nil, false
		}
		if n > 0 {
			return i + host, n, h.to, true
		}
		i++
	}
}

// afterSlashes returns the length of the second slash of two, with what is between them: b begins with the first. It is 0 if
// there is none, and not sure if b is too short.
func afterSlashes(b []byte) (n int, sure bool) {
	switch {
	case len(b) < 2, len(b) == 2 && b[1] == '\\':
		return 0, false
	case b[1] == '/':
		return 2, true
	case b[1] == '\\' && b[2] == '/':
		return 3, true
	}
	return 0, true
}

const mostPort = len(":65535")

// at returns how long the host is with which b begins, including a usual port, or 0 for another host. It is not sure if b may go
// on in a way that matters.
func (h *Host) at(b []byte) (n int, sure bool) {
	n = len(h.from)
	if !bytes.EqualFold(b[:min(n, len(b))], h.from[:min(n, len(b))]) {
		return 0, true
	}
	sure = len(b) >= n+mostPort+1
	if len(b) <= n {
		if len(b) < n {
			return 0, false
		}
		return n, false
	}
	switch next := b[n]; {
	case inName(next):
		return 0, true
	case next == '.': // the end of a sentence, or a longer name
		if len(b) == n+1 {
			return n, false
		}
		if inName(b[n+1]) {
			return 0, true
		}
	case next == ':':
		port := n + 1
		for port < len(b) && b[port] >= '0' && b[port] <= '9' {
			port++
		}
		switch string(b[n+1 : port]) {
		case "80", "443":
			return port, sure || port < len(b)
		case "":
			return n, sure || port < len(b)
		}
		return 0, sure || port < len(b)
	}
	return n, true
}

// inName reports whether a byte may be part of a host name.
func inName(c byte) bool {
	return c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
