package space

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"heddle/identity"
)

// Status is the outcome of an operation or a read.
type Status uint8

const (
	OK        Status = 1 + iota
	None             // no tuple matches, or none has the name
	Exists           // Cas: a tuple matches
	Denied           // the tuple belongs to somebody else
	Malformed        // invalid encoding or request
	Unsigned         // the signature is not the author's
	Stranger         // the author is not admitted
	Clock            // its time is too far from the space's
	TooLarge         // the tuple exceeds the limit
	Quota            // the author's limit is reached
	Full             // the space's limit is reached
)

var statusNames = map[Status]string{OK: "ok", None: "none", Exists: "exists", Denied: "denied", Malformed: "malformed", Unsigned: "unsigned",
	Stranger: "stranger", Clock: "clock", TooLarge: "too large", Quota: "quota", Full: "full"}

// String returns one or two words.
func (s Status) String() string { return statusNames[s] }

// Result is the answer to an operation or a read. Spaces that applied the same operations give the same bytes.
type Result struct {
	Status  Status
	Version uint64    // operations that the space has taken, with this one; 0 for a read
	Now     time.Time // the space's clock at the operation, to the millisecond; zero for a read
	Detail  string    // for people, if Status is not OK
	Entries []Entry   // read or taken tuples; Cas: the existing tuple, if the author may read it
}

// Entry is a tuple in a space, with the proof of its author.
type Entry struct {
	Seq     uint64    // order of arrival
	Until   time.Time // end of the lease, by the space's clock, to the millisecond
	Op      SignedOp  // the Out or Cas that put it
	Renewal SignedOp  // the last renewal, or none
}

// ID returns the tuple's name.
func (e Entry) ID() ID { return e.Op.id }

// Tuple returns the values, which must not be modified.
func (e Entry) Tuple() Tuple { return e.Op.op.Tuple }

// Author returns the key that signed the tuple.
func (e Entry) Author() identity.Key { return e.Op.op.Author }

// Verify checks that the author put the tuple into this space and asked for this lease, within the slack of clocks. Only the
// space can tell whether the tuple is still there.
func (e Entry) Verify(space ID, slack time.Duration) error {
	op := e.Op.op
	if op.Verb != Out && op.Verb != Cas || op.Space != space {
		return errors.New("the tuple was not put into this space")
	}
	if err := e.Op.Verify(); err != nil {
		return fmt.Errorf("the tuple: %w", err)
	}
	end := op.At.Add(op.Lease)
	if e.Renewal.raw != nil {
		renewal := e.Renewal.op
		if renewal.Verb != Renew || renewal.Target != e.ID() || renewal.Author != op.Author || renewal.Space != space {
			return errors.New("the tuple's renewal is of another tuple")
		}
		if err := e.Renewal.Verify(); err != nil {
			return fmt.Errorf("the tuple's renewal: %w", err)
		}
		end = renewal.At.Add(renewal.Lease)
	}
	if e.Until.After(end.Add(slack)) {
		return fmt.Errorf("the tuple is said to stay until %v, and its author asked for %v", e.Until, end)
	}
	return nil
}

// Query is a read.
type Query struct {
	Template Template
	After    uint64 // only tuples with a higher Seq
	Limit    int    // entries in the answer, 1 to [MaxEntries]
	// Since makes the server wait until the space has taken so many operations, so that a client reads its own writes.
	Since uint64
}

// Limits of one answer.
const (
	MaxEntries = 1000
	// maxAnswer limits the entries of one answer, in bytes. An answer has at least one entry.
	maxAnswer = 4 << 20
	MaxResult = maxAnswer + 2*MaxOp + 4096 // bytes of an encoded result
	maxDetail = 1024
)

// Encode returns the canonical encoding.
func (q Query) Encode() ([]byte, error) {
	if len(q.Template) > maxFields {
		return nil, fmt.Errorf("a template has %d fields, more than %d", len(q.Template), maxFields)
	}
	if q.Limit < 1 || q.Limit > MaxEntries {
		return nil, fmt.Errorf("a read is of 1 to %d tuples, and not %d", MaxEntries, q.Limit)
	}
	b := appendFields([]byte{opVersion}, q.Template)
	b = binary.BigEndian.AppendUint64(b, q.After)
	b = binary.BigEndian.AppendUint16(b, uint16(q.Limit))
	return binary.BigEndian.AppendUint64(b, q.Since), nil
}

// DecodeQuery reads the output of [Query.Encode].
func DecodeQuery(raw []byte) (Query, error) {
	r := reader{rest: raw}
	r.version()
	q := Query{Template: r.fields(true), After: r.u64(), Limit: int(r.u16()), Since: r.u64()}
	if q.Limit < 1 || q.Limit > MaxEntries {
		r.fail("a read is of 1 to %d tuples, and not %d", MaxEntries, q.Limit)
	}
	if err := r.end(); err != nil {
		return Query{}, fmt.Errorf("a read: %w", err)
	}
	return q, nil
}

// Encode returns the canonical encoding.
func (r Result) Encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{opVersion, uint8(r.Status)}, r.Version)
	b = binary.BigEndian.AppendUint64(b, uint64(milli(r.Now)))
	b = appendSized(b, r.Detail[:min(len(r.Detail), maxDetail)])
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.Entries)))
	for _, e := range r.Entries {
		b = e.appendTo(b)
	}
	return b
}

// DecodeResult reads the output of [Result.Encode]. It checks no signatures.
func DecodeResult(raw []byte) (Result, error) {
	r := reader{rest: raw}
	r.version()
	result := Result{Status: Status(r.u8()), Version: r.u64(), Now: fromMilli(r.i64())}
	if result.Status < OK || result.Status > Full {
		r.fail("there is no status %d", result.Status)
	}
	detail := r.sized()
	if len(detail) > maxDetail {
		r.fail("its detail has %d bytes, more than %d", len(detail), maxDetail)
	}
	result.Detail = string(detail)
	n := int(r.u16())
	if n > MaxEntries {
		r.fail("it has %d tuples, more than %d", n, MaxEntries)
	}
	for i := 0; i < n && r.err == nil; i++ {
		result.Entries = append(result.Entries, r.entry())
	}
	if err := r.end(); err != nil {
		return Result{}, fmt.Errorf("an answer: %w", err)
	}
	return result, nil
}

func (e Entry) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, e.Seq)
	b = binary.BigEndian.AppendUint64(b, uint64(milli(e.Until)))
	return appendSized(appendSized(b, e.Op.raw), e.Renewal.raw)
}

func (e Entry) size() int { return 24 + len(e.Op.raw) + len(e.Renewal.raw) }

func (r *reader) entry() (e Entry) {
	e.Seq, e.Until = r.u64(), fromMilli(r.i64())
	op, renewal := r.sized(), r.sized()
	if r.err != nil {
		return e
	}
	if e.Op, r.err = DecodeOp(op); r.err == nil && len(renewal) > 0 {
		e.Renewal, r.err = DecodeOp(renewal)
	}
	return e
}

// milli encodes the zero time as 0.
func milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
