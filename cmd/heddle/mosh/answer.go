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

// answer collects what ssh's output says about a session.
type answer struct {
	addr  netip.Addr
	port  uint16
	key   Key
	err   error         // the first wrong line
	found chan struct{} // closed when the key has arrived
}

// The format of mosh-server: 22 characters of base64 are 128 bits.
var connectLine = regexp.MustCompile(`^MOSH CONNECT ([0-9]{1,5}) ([A-Za-z0-9/+]{22})$`)

// server handles a line of the server if it is for mosh. Only the first one counts: no later output may redirect the client.
func (a *answer) server(line string) (taken bool) {
	if !strings.HasPrefix(line, "MOSH CONNECT ") {
		return a.key != "" // mosh-server's greeting, which the wrapper hides too
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
		a.err = errors.New("it sent a MOSH CONNECT line that is none") // not shown, since it may contain a key
		return true
	}
	a.port, a.key = uint16(port), Key(m[2])
	close(a.found)
	return true
}

// proxy handles a line of ssh or our proxy if it is for mosh. The proxy's line is first, before the server can send
// anything; a second address is an attempt to redirect the client.
func (a *answer) proxy(line string) (taken bool) {
	text, ours := strings.CutPrefix(line, "MOSH IP ")
	if !ours {
		return a.key != "" // the expected "Connection to HOST closed"
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

// maxLine is the length in bytes at which a line is split.
const maxLine = 64 << 10

// lines passes on whole lines, except those that take takes.
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

// flush passes on an unfinished line. Call it after the last write.
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
