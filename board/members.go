package board

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"heddle/board/space"
	"heddle/identity"
	"heddle/path"
)

const (
	maxMembers   = 16 << 20        // bytes of the file
	membersEvery = 2 * time.Second // how often the file is looked at
)

// Members is a file of the keys that a board lets in: a key a line, and then what people call it; # begins a remark.
type Members struct {
	// Keys are those that were last read whole.
	Keys []identity.Key

	file        string
	seen, known fileStamp // as it was last looked at, and as it was last read, right or wrong
}

// fileStamp is what a file shows when it has changed; it is zero where there is none.
type fileStamp struct {
	at   time.Time
	size int64
}

func stampOf(file string) fileStamp {
	info, err := os.Stat(file)
	if err != nil {
		return fileStamp{}
	}
	return fileStamp{info.ModTime(), info.Size()}
}

// OpenMembers reads the file. One that names nobody is refused, as one that holds anything else is.
func OpenMembers(file string) (*Members, error) {
	m := &Members{file: file}
	return m, m.read()
}

// read takes up the file, whole or not at all.
func (m *Members) read() error {
	m.seen = stampOf(m.file)
	m.known = m.seen
	f, err := os.Open(m.file)
	if err != nil {
		return &path.Error{What: "members in " + m.file, Why: "cannot be read", Err: err, Hint: "it has a key a line; `heddle node key` prints a device's"}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxMembers+1))
	if err == nil && len(text) > maxMembers {
		err = fmt.Errorf("it has more than %d bytes", maxMembers)
	}
	if err != nil {
		return &path.Error{What: "members in " + m.file, Why: "cannot be read", Err: err}
	}
	keys, line, err := parseMembers(text)
	if err != nil {
		return &path.Error{What: fmt.Sprintf("members in %s, line %d", m.file, line), Why: err.Error(), Hint: "a line is a key, and then what people call it"}
	}
	if len(keys) == 0 {
		return &path.Error{What: "members in " + m.file, Why: "it names nobody", Hint: "it has a key a line; to let nobody in, stop the board"}
	}
	m.Keys = keys
	return nil
}

func parseMembers(text []byte) (keys []identity.Key, line int, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for line = 1; lines.Scan(); line++ {
		entry, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(entry)
		if len(words) == 0 {
			continue
		}
		key, err := identity.ParseKey(words[0])
		if err != nil {
			return nil, line, err
		}
		keys = append(keys, key)
	}
	return keys, line, lines.Err()
}

// Watch gives the keys to set after each change of the file and each signal, until ctx ends. A wrong file changes nothing, and the
// log says why. It waits until the file stands still: its writer may not be done.
func (m *Members) Watch(ctx context.Context, again <-chan os.Signal, set func([]identity.Key), log *slog.Logger) {
	tick := time.NewTicker(membersEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-tick.C:
			now := stampOf(m.file)
			still := now == m.seen
			m.seen = now
			if !still || now == m.known {
				continue
			}
		}
		if err := m.read(); err != nil {
			hint := ""
			if known, ok := errors.AsType[*path.Error](err); ok {
				hint = known.Hint
			}
			log.Error("the members stay as they were", "members", len(m.Keys), "error", err, "hint", hint)
			continue
		}
		set(m.Keys)
		log.Info("the members are read again", "members", len(m.Keys))
	}
}

// SetMembers lets in these keys and no others; nil is everybody. Requests of others that wait are refused. Their tuples stay.
func (l *Local) SetMembers(members []identity.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return
	}
	l.space.SetMembers(members)
	l.waiting = slices.DeleteFunc(l.waiting, func(r *request) bool {
		if l.space.Member(r.who()) {
			return false
		}
		r.result = space.Result{Status: space.Stranger, Detail: fmt.Sprintf("%v is let in no longer", r.who())}
		close(r.done)
		return true
	})
}

func (r *request) who() identity.Key {
	if r.isOp() {
		return r.op.Op().Author
	}
	return r.reader
}
