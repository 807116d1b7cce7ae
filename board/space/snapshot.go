package space

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
)

// SnapshotWriter writes a snapshot from rows as a store has them, so that it need not be in memory.
type SnapshotWriter struct {
	to  *bufio.Writer
	err error
}

// NewSnapshotWriter begins a snapshot.
func NewSnapshotWriter(to io.Writer) *SnapshotWriter {
	w := &SnapshotWriter{to: bufio.NewWriter(to)}
	w.err = w.to.WriteByte(opVersion)
	return w
}

// Row adds a row. They come in the order of keys.
func (w *SnapshotWriter) Row(key, value []byte) error {
	if w.err == nil {
		_, w.err = w.to.Write(appendSized(appendSized(nil, key), value))
	}
	return w.err
}

// Flush ends the snapshot.
func (w *SnapshotWriter) Flush() error {
	if w.err == nil {
		w.err = w.to.Flush()
	}
	return w.err
}

// Snapshot gives the whole state; [Restore] reads it.
func (s *Space) Snapshot() []byte {
	rows := []Change{{countersKey, s.counters()}}
	for _, t := range s.tuples {
		rows = append(rows, Change{t.key(), t.value()})
	}
	for _, m := range s.memory {
		rows = append(rows, Change{m.key(), m.value()})
	}
	slices.SortFunc(rows, func(a, b Change) int { return bytes.Compare(a.Key, b.Key) })
	var b bytes.Buffer
	w := NewSnapshotWriter(&b)
	for _, row := range rows {
		_ = w.Row(row.Key, row.Value) // memory takes all
	}
	_ = w.Flush()
	return b.Bytes()
}

// Rows gives the rows of a snapshot, which [Restore] checks.
func Rows(snapshot []byte) ([]Change, error) {
	r := reader{rest: snapshot}
	if v := r.u8(); v != opVersion {
		r.fail("it is of version %d, and not %d", v, opVersion)
	}
	var rows []Change
	for r.err == nil && len(r.rest) > 0 {
		rows = append(rows, Change{r.sized(), r.sized()})
	}
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("a snapshot: %w", err)
	}
	return rows, nil
}

// Restore makes a space of a snapshot. It checks all of it, signatures included; that it is the right one, [Space.Hash] tells.
func Restore(config Config, snapshot []byte) (*Space, error) {
	rows, err := Rows(snapshot)
	if err != nil {
		return nil, err
	}
	for i, row := range rows {
		if i > 0 && bytes.Compare(rows[i-1].Key, row.Key) >= 0 {
			return nil, errors.New("a snapshot: its rows are not in order")
		}
	}
	s, err := Load(config, rows)
	if err != nil {
		return nil, fmt.Errorf("a snapshot: %w", err)
	}
	for _, t := range s.tuples {
		if err := t.Verify(config.Name, config.Limits.Slack); err != nil {
			return nil, fmt.Errorf("a snapshot: %w", err)
		}
	}
	return s, nil
}
