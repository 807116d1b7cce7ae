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
	membersEvery = 2 * time.Second // how often the file is checked
)

// Members is a file of admitted keys: one key a line, followed by an optional name; # begins a comment.
type Members struct {
	Keys []identity.Key // from the last valid file

	file        string
	seen, known fileStamp // when last checked, and when last read, valid or not
}

// fileStamp changes with the file; it is zero if there is none.
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

// OpenMembers reads the file. It fails if the file names nobody or has other content.
func OpenMembers(file string) (*Members, error) {
	m := &Members{file: file}
	return m, m.read()
}

// read reads the file, and keeps the old keys if it is invalid.
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

// Watch calls set with the keys after each change of the file and each signal, until ctx ends. An invalid file changes
// nothing and is logged. Watch waits until the file stops changing, since its writer may not be done.
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

// SetMembers admits only these keys; nil admits everybody. It refuses waiting requests of others. Their tuples stay.
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
