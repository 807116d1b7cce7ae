package space

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// SnapshotWriter streams a snapshot from a store's rows. It keeps the first error.
type SnapshotWriter struct{ to *bufio.Writer }

// NewSnapshotWriter begins a snapshot.
func NewSnapshotWriter(to io.Writer) SnapshotWriter {
	w := SnapshotWriter{bufio.NewWriter(to)}
	_ = w.to.WriteByte(opVersion) // Flush returns its error
	return w
}

// Row adds a row. Rows must come in key order.
func (w SnapshotWriter) Row(key, value []byte) error {
	_, err := w.to.Write(appendSized(appendSized(nil, key), value))
	return err
}

// Flush ends the snapshot.
func (w SnapshotWriter) Flush() error { return w.to.Flush() }

// Rows returns the rows of a snapshot, which [Restore] checks.
func Rows(snapshot []byte) ([]Change, error) {
	r := reader{rest: snapshot}
	r.version()
	var rows []Change
	for r.err == nil && len(r.rest) > 0 {
		rows = append(rows, Change{r.sized(), r.sized()})
	}
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("a snapshot: %w", err)
	}
	return rows, nil
}

// Restore makes a space from a snapshot and checks all signatures. The caller must compare [Space.Hash].
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
