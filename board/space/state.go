package space

import (
	"bytes"
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"heddle/identity"
)

// The state of a space is a table: a row for each tuple and each remembered operation, and one for the counters.

const (
	tableCounters = 'c'
	tableTuple    = 't' // and Seq
	tableMemory   = 'o' // and ID
)

var countersKey = []byte{tableCounters}

// Change is a row of the state that was added, changed or, if Value is nil, removed.
type Change struct{ Key, Value []byte }

// Changes returns the rows changed since the last call, in key order. A store of these rows holds the state: see [Load].
func (s *Space) Changes() []Change {
	s.changes[string(countersKey)] = s.counters()
	list := make([]Change, 0, len(s.changes))
	for _, key := range slices.Sorted(maps.Keys(s.changes)) {
		list = append(list, Change{[]byte(key), s.changes[key]})
	}
	clear(s.changes)
	return list
}

// Hash is equal for spaces with equal state and config.
func (s *Space) Hash() [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte("heddle space 1"))
	h.Write(s.stamp[:])
	h.Write(s.counters())
	h.Write(s.sum.bytes())
	return [sha256.Size]byte(h.Sum(nil))
}

// Load makes a space from the current rows of [Space.Changes], in any order. It checks no signatures, so nobody else may
// write to the store.
func Load(config Config, rows []Change) (*Space, error) {
	s, err := New(config)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if err := s.load(row.Key, row.Value); err != nil {
			return nil, fmt.Errorf("row %x: %w", row.Key, err)
		}
	}
	for _, t := range s.tuples {
		if t.Seq > s.seq {
			return nil, fmt.Errorf("tuple %d is younger than the state, which has %d", t.Seq, s.seq)
		}
	}
	clear(s.changes)
	return s, nil
}

func (s *Space) load(key, value []byte) error {
	if len(key) == 0 {
		return errors.New("it has no key")
	}
	r := reader{rest: value}
	switch key[0] {
	case tableCounters:
		name := r.id()
		s.clock, s.seq, s.version = r.i64(), r.u64(), r.u64()
		if r.err == nil && name != s.config.Name {
			return fmt.Errorf("the state is of the board %v, and not of %v", name, s.config.Name)
		}
		return r.wholeRow(key, countersKey)
	case tableTuple:
		t := &tuple{Entry: r.entry()}
		if err := r.wholeRow(key, t.key()); err != nil {
			return err
		}
		if t.Op.op.Verb != Out && t.Op.op.Verb != Cas || s.tuples[t.ID()] != nil {
			return errors.New("it is no tuple, or there twice")
		}
		s.add(t)
		return nil
	case tableMemory:
		m := &memory{id: ID{}, until: r.i64(), author: r.key(), result: r.sized()}
		copy(m.id[:], key[1:])
		if err := r.wholeRow(key, m.key()); err != nil {
			return err
		}
		if _, err := DecodeResult(m.result); err != nil || s.memory[m.id] != nil {
			return errors.New("it is no result, or there twice")
		}
		s.keep(m)
		return nil
	}
	return errors.New("there are no such rows")
}

func (r *reader) wholeRow(key, want []byte) error {
	if err := r.end(); err != nil {
		return err
	}
	if !bytes.Equal(key, want) {
		return errors.New("its key is that of another row")
	}
	return nil
}

func (s *Space) counters() []byte {
	b := binary.BigEndian.AppendUint64(slices.Clone(s.config.Name[:]), uint64(s.clock))
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, s.seq), s.version)
}

func (c Config) stamp() [sha256.Size]byte {
	b := slices.Clone(c.Name[:])
	l := c.Limits
	for _, n := range []int64{l.Lease.Milliseconds(), l.Slack.Milliseconds(), int64(l.Op), int64(l.Tuples), l.Bytes, int64(l.AuthorTuples), l.AuthorBytes, int64(l.AuthorOps)} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	if c.Members != nil {
		b = append(b, 1)
	}
	for _, k := range slices.SortedFunc(slices.Values(c.Members), identity.Key.Compare) {
		b = append(b, k.Bytes()...)
	}
	return sha256.Sum256(b)
}

func (t *tuple) key() []byte   { return binary.BigEndian.AppendUint64([]byte{tableTuple}, t.Seq) }
func (t *tuple) value() []byte { return t.appendTo(nil) }
func (m *memory) key() []byte  { return append([]byte{tableMemory}, m.id[:]...) }

func (m *memory) value() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(m.until))
	return appendSized(append(b, m.author.Bytes()...), m.result)
}

func (m *memory) size() int { return 2*len(m.id) + 8 + len(m.result) }

// row records a change of the table; nil removes.
func (s *Space) row(key, old, value []byte) {
	if old != nil {
		s.sum.remove(key, old)
	}
	if value != nil {
		s.sum.add(key, value)
	}
	s.changes[string(key)] = value
}

func (s *Space) account(who identity.Key) *account {
	a := s.authors[who]
	if a == nil {
		a = &account{}
		s.authors[who] = a
	}
	return a
}

func (s *Space) charge(who identity.Key, tuples, ops, bytes int) {
	a := s.account(who)
	a.tuples += tuples
	a.ops += ops
	a.bytes += int64(bytes)
	s.bytes += int64(bytes)
	if *a == (account{}) {
		delete(s.authors, who)
	}
}

func (s *Space) add(t *tuple) {
	s.tuples[t.ID()] = t
	s.index.add(t)
	heap.Push(&s.leases, t)
	s.charge(t.Author(), 1, 0, t.size())
	s.row(t.key(), nil, t.value())
}

// extend gives a tuple the lease of a renewal.
func (s *Space) extend(t *tuple, op SignedOp) {
	old, size := t.value(), t.size()
	t.Renewal, t.Until = op, fromMilli(s.clock).Add(op.op.Lease)
	heap.Fix(&s.leases, t.place)
	s.charge(t.Author(), 0, 0, t.size()-size)
	s.row(t.key(), old, t.value())
}

func (s *Space) drop(t *tuple) {
	delete(s.tuples, t.ID())
	s.index.remove(t)
	heap.Remove(&s.leases, t.place)
	s.charge(t.Author(), -1, 0, -t.size())
	s.row(t.key(), t.value(), nil)
}

// remember keeps a result for as long as the operation's time is admissible.
func (s *Space) remember(op SignedOp, result Result) {
	s.keep(&memory{id: op.id, author: op.op.Author, until: op.op.At.UnixMilli() + s.config.Limits.Slack.Milliseconds(), result: result.Encode()})
}

func (s *Space) keep(m *memory) {
	s.memory[m.id] = m
	heap.Push(&s.memories, m)
	s.charge(m.author, 0, 1, m.size())
	s.row(m.key(), nil, m.value())
}

func (s *Space) forget(m *memory) {
	delete(s.memory, m.id)
	heap.Remove(&s.memories, m.place)
	s.charge(m.author, 0, -1, -m.size())
	s.row(m.key(), m.value(), nil)
}

// Usage is how much a space holds.
type Usage struct {
	Tuples     int       `json:"tuples"`
	Bytes      int64     `json:"bytes"`      // of encoded tuples and remembered answers
	Remembered int       `json:"remembered"` // operations
	Authors    int       `json:"authors"`
	Version    uint64    `json:"version"`
	Clock      time.Time `json:"clock"`
}

// Usage returns the current usage.
func (s *Space) Usage() Usage {
	return Usage{Tuples: len(s.tuples), Bytes: s.bytes, Remembered: len(s.memory), Authors: len(s.authors), Version: s.version, Clock: fromMilli(s.clock)}
}

// Config returns the config of the space.
func (s *Space) Config() Config { return s.config }
