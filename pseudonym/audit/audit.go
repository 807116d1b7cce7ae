// Package audit keeps an operator's log of what happened at a cloud, without names: counts of events in each minute, and changes of
// tenants. It says of no user which site she uses, when she came, or from where.
package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"heddle/internal/errhint"
	"heddle/internal/filelock"
)

// Line is one line of a log.
type Line struct {
	Time  time.Time `json:"time"` // begin of the minute
	Event string    `json:"event"`
	Count int       `json:"count"`
	Site  string    `json:"site,omitempty"` // of a tenant that was added or removed; never of a user
}

// Sizes. A log never has more than maxSize bytes and as much in each of keep older files, FILE.1 being the newest.
const (
	maxSize     = 8 << 20
	keep        = 9
	mostPending = 10_000 // counts that wait for a disk that is full
	every       = time.Minute
)

// Log is open until [Log.Close]. Several processes may have one file open. It is safe for concurrent use.
type Log struct {
	file string
	log  *slog.Logger
	now  func() time.Time
	max  int64

	writing sync.Mutex // one write at a time

	mu      sync.Mutex
	pending map[key]int
	failed  bool

	stop    chan struct{}
	stopped sync.WaitGroup
}

type key struct {
	minute int64
	event  string
}

// Open opens a log, and makes its file. Only its owner may read it.
func Open(file string, log *slog.Logger) (*Log, error) {
	l := newLog(file, log, time.Now)
	if err := l.append(nil); err != nil {
		return nil, err
	}
	l.stopped.Go(l.run)
	return l, nil
}

func newLog(file string, log *slog.Logger, now func() time.Time) *Log {
	return &Log{file: file, log: log, now: now, max: maxSize, pending: map[key]int{}, stop: make(chan struct{})}
}

func (l *Log) run() {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-t.C:
			l.flush(l.now().Truncate(every))
		}
	}
}

// Note counts an event. The count is written when its minute is over.
func (l *Log) Note(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key{l.now().Truncate(every).Unix(), event}
	if len(l.pending) >= mostPending { // a minute that is not quite right is better than no count
		for old := range l.pending {
			if old.event == event {
				k = old
				break
			}
		}
	}
	l.pending[k]++
}

// Say writes at once what the operator did. The site may be empty.
func (l *Log) Say(event, site string) error {
	return l.append([]Line{{l.now().UTC().Truncate(every), event, 1, site}})
}

// Close writes what is left.
func (l *Log) Close() error {
	close(l.stop)
	l.stopped.Wait()
	return l.flush(time.Time{})
}

// flush writes the counts of all minutes before a time, or all. What cannot be written waits for the next time.
func (l *Log) flush(before time.Time) error {
	var lines []Line
	l.mu.Lock()
	for k, n := range l.pending {
		if at := time.Unix(k.minute, 0).UTC(); before.IsZero() || at.Before(before) {
			lines = append(lines, Line{Time: at, Event: k.event, Count: n})
			delete(l.pending, k)
		}
	}
	l.mu.Unlock()
	if len(lines) == 0 {
		return nil
	}
	slices.SortFunc(lines, func(a, b Line) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Event, b.Event))
	})
	err := l.append(lines)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		for _, one := range lines {
			l.pending[key{one.Time.Unix(), one.Event}] += one.Count
		}
		if !l.failed {
			l.log.Error("the audit log cannot be written; counts wait in memory", "error", err)
		}
	}
	l.failed = err != nil
	return err
}

func (l *Log) append(lines []Line) error {
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	for _, one := range lines {
		if err := out.Encode(one); err != nil {
			return err
		}
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.write(text.Bytes()); err != nil {
		return &errhint.Error{What: "the audit log " + l.file, Why: "it cannot be written", Hint: "look at the disk, and at audit = in cloud.toml", Err: err}
	}
	return nil
}

// write adds whole lines. The file is opened anew each time, since another process may have moved it.
func (l *Log) write(text []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(l.file), 0o700); err != nil {
		return err
	}
	lock, err := filelock.Lock(l.file + ".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	if info, err := os.Stat(l.file); err == nil && info.Size() > 0 && info.Size()+int64(len(text)) > l.max {
		l.rotate()
	}
	f, err := os.OpenFile(l.file, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil || len(text) == 0 {
		return err
	}
	if last := make([]byte, 1); info.Size() > 0 { // a line that a crash or a full disk cut off
		if _, err := f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
			text = append([]byte{'\n'}, text...)
		}
	}
	if _, err := f.Write(text); err != nil {
		_ = f.Truncate(info.Size()) // lines are written again later, and count once
		return err
	}
	return f.Sync()
}

// rotate moves the file to FILE.1, that one to FILE.2 and so on. Where it may not, as in a file that can only be added to, it leaves it.
func (l *Log) rotate() {
	for i := keep - 1; i > 0; i-- {
		if err := os.Rename(older(l.file, i), older(l.file, i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
	_ = os.Rename(l.file, older(l.file, 1))
}

func older(file string, n int) string { return fmt.Sprintf("%s.%d", file, n) }

// Read calls visit with each line since a time, the oldest first. It returns how many lines are damaged.
func Read(file string, since time.Time, visit func(Line) error) (damaged int, err error) {
	found := false
	for i := keep; i >= 0; i-- {
		name := file
		if i > 0 {
			name = older(file, i)
		}
		n, err := readOne(name, since, visit)
		damaged += n
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if found = true; err != nil {
			return damaged, err
		}
	}
	if !found {
		return 0, &errhint.Error{What: "the audit log " + file, Why: "there is none yet", Hint: "heddle pseudonym serve makes it where the store runs"}
	}
	return damaged, nil
}

func readOne(file string, since time.Time, visit func(Line) error) (damaged int, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		var one Line
		if len(in.Bytes()) == 0 {
			continue
		}
		if json.Unmarshal(in.Bytes(), &one) != nil || one.Event == "" {
			damaged++
			continue
		}
		if one.Time.Before(since) {
			continue
		}
		if err := visit(one); err != nil {
			return damaged, err
		}
	}
	return damaged, in.Err()
}
