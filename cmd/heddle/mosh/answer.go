package mosh

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// answer gathers what ssh's output says of a session.
type answer struct {
	addr  netip.Addr
	port  uint16
	key   Key
	err   error         // the first line that was wrong
	found chan struct{} // closed when the key is there
}

// As mosh-server prints it: 22 characters of base64 are 128 bits.
var connectLine = regexp.MustCompile(`^MOSH CONNECT ([0-9]{1,5}) ([A-Za-z0-9/+]{22})$`)

// server takes a line of what the server printed, if it is for mosh. Only the first counts: nothing that runs later may
// send the client elsewhere.
func (a *answer) server(line string) (taken bool) {
	if !strings.HasPrefix(line, "MOSH CONNECT ") {
		return a.key != "" // mosh-server's own greeting, which the wrapper does not show either
	}
	if a.key != "" || a.err != nil {
		return true
	}
	m := connectLine.FindStringSubmatch(line)
	if m == nil {
		m = []string{"", "", ""}
	}
	port, err := strconv.ParseUint(m[1], 10, 16)
	if err != nil || port == 0 {
		a.err = errors.New("it sent a MOSH CONNECT line that is none") // which may hold a key, so it is not shown
		return true
	}
	a.port, a.key = uint16(port), Key(m[2])
	close(a.found)
	return true
}

// proxy takes a line of what ssh and our proxy printed, if it is for mosh. The proxy comes first, before the server can
// say anything; a second address is somebody's who wants the client elsewhere.
func (a *answer) proxy(line string) (taken bool) {
	text, ours := strings.CutPrefix(line, "MOSH IP ")
	if !ours {
		return a.key != "" // "Connection to HOST closed", which is what was to happen
	}
	addr, err := netip.ParseAddr(strings.TrimSpace(text))
	switch {
	case a.err != nil:
	case a.addr.IsValid():
		a.err = fmt.Errorf("a second MOSH IP line came: %q", line)
	case err != nil:
		a.err = fmt.Errorf("%q gives no address", line)
	default:
		a.addr = addr
	}
	return true
}

// maxLine is where a line is taken for ended, in bytes.
const maxLine = 64 << 10

// lines passes what is written on, whole lines at a time, but for those that take takes.
type lines struct {
	take    func(line string) bool
	rest    io.Writer
	mu      *sync.Mutex // of rest, and of what take changes
	partial []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.partial = append(l.partial, p...)
	for {
		end := bytes.IndexByte(l.partial, '\n')
		if end < 0 && len(l.partial) < maxLine {
			return len(p), nil
		}
		if end < 0 {
			end = len(l.partial) - 1
		}
		l.line(l.partial[:end+1])
		l.partial = l.partial[end+1:]
	}
}

// flush passes on what has no end of line. Call it when nothing writes any more.
func (l *lines) flush() {
	if len(l.partial) > 0 {
		l.line(append(l.partial, '\n'))
		l.partial = nil
	}
}

func (l *lines) line(text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.take(strings.TrimRight(string(text), "\r\n")) {
		l.rest.Write(text)
	}
}
