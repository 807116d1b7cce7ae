package space

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"heddle/identity"
)

// ID names an operation and the tuple that it put: the SHA-256 of what its author signed. It also names a space.
type ID [sha256.Size]byte

// String returns the ID in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText returns what String does.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the output of String.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// ParseID reads the output of [ID.String].
func ParseID(text string) (ID, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(ID{}) {
		return ID{}, fmt.Errorf("%.80q is no name of a tuple: it has 64 hexadecimal digits", text)
	}
	return ID(b), nil
}

// Verb is the kind of an operation.
type Verb uint8

// The operations. Reads are not among them: they change nothing and need no signature.
const (
	Out    Verb = 1 + iota // put a tuple
	Inp                    // take the oldest matching tuple, if there is one
	Cas                    // put a tuple unless one matches a template
	Renew                  // renew the lease of one's own tuple
	Remove                 // remove a tuple by name
)

var verbNames = map[Verb]string{Out: "out", Inp: "inp", Cas: "cas", Renew: "renew", Remove: "remove"}

// String returns the Linda name of the operation, such as inp.
func (v Verb) String() string { return verbNames[v] }

// Anyone in a list of readers or takers means everybody who is admitted.
var Anyone = identity.Key{}

// Op is an unsigned operation. [Op.Sign] sets Author, At and Nonce.
type Op struct {
	Space  ID           // a signature for one space is invalid for others
	Author identity.Key // the signer
	Verb   Verb
	At     time.Time // by the space's clock, to the millisecond
	Nonce  [16]byte  // makes equal operations differ

	Template Template      // Inp, Cas
	Tuple    Tuple         // Out, Cas
	Lease    time.Duration // until the tuple expires, to the millisecond: Out, Cas, Renew
	// Readers may read the tuple, besides its author. Empty means [Anyone]; a list of the author alone makes it private.
	Readers []identity.Key
	// Takers may take or remove the tuple, besides its author. Empty means nobody. Out, Cas.
	Takers []identity.Key
	Target ID // the tuple's name: Renew, Remove
}

const (
	opVersion = 1
	purpose   = "heddle board 1" // separates these signatures from others of the same key
	sigSize   = 64
)

// SignedOp is an operation with its author's signature. It must not be modified. The zero value is none.
type SignedOp struct {
	op       Op
	raw      []byte // the signed bytes, then the signature
	id       ID
	verified bool
}

// Sign makes op an operation of id at time now, with a random nonce.
func (op Op) Sign(id identity.Identity, now time.Time) (SignedOp, error) {
	op.Author, op.At = id.Key(), time.UnixMilli(now.UnixMilli()).UTC()
	_, _ = rand.Read(op.Nonce[:]) // it cannot fail
	if err := op.check(); err != nil {
		return SignedOp{}, err
	}
	body := op.appendTo(nil)
	signature, err := id.Sign(purpose, body)
	if err != nil {
		return SignedOp{}, err
	}
	return DecodeOp(append(body, signature...))
}

// check returns an error if op cannot be encoded.
func (op Op) check() error {
	if len(op.Tuple) > maxFields || len(op.Template) > maxFields {
		return fmt.Errorf("it has more than %d fields", maxFields)
	}
	if len(op.Readers) > maxKeys || len(op.Takers) > maxKeys {
		return fmt.Errorf("a list has more than %d keys", maxKeys)
	}
	size := 0
	for _, fields := range [][]Field{op.Tuple, op.Template} {
		for _, f := range fields {
			if !f.IsValue() && !f.place {
				return errors.New("a field is empty")
			}
			size += len(f.text)
		}
	}
	if size > MaxOp {
		return fmt.Errorf("it has %d bytes, more than %d", size, MaxOp)
	}
	return nil
}

func (op Op) appendTo(b []byte) []byte {
	b = append(b, opVersion)
	b = append(b, op.Space[:]...)
	b = append(b, op.Author.Bytes()...)
	b = append(b, uint8(op.Verb))
	b = binary.BigEndian.AppendUint64(b, uint64(op.At.UnixMilli()))
	b = append(b, op.Nonce[:]...)
	if op.Verb == Inp || op.Verb == Cas {
		b = appendFields(b, op.Template)
	}
	if op.Verb == Renew || op.Verb == Remove {
		b = append(b, op.Target[:]...)
	}
	if op.Verb == Out || op.Verb == Cas || op.Verb == Renew {
		b = binary.BigEndian.AppendUint64(b, uint64(op.Lease.Milliseconds()))
	}
	if op.Verb == Out || op.Verb == Cas {
		b = appendFields(b, op.Tuple)
		b = appendKeys(appendKeys(b, op.Readers), op.Takers)
	}
	return b
}

// maxLease keeps arithmetic with leases from overflowing. Spaces have a much smaller limit.
const maxLease = 100 * 365 * 24 * time.Hour

// DecodeOp decodes an operation without checking its signature. It keeps raw.
func DecodeOp(raw []byte) (SignedOp, error) {
	if len(raw) > MaxOp {
		return SignedOp{}, fmt.Errorf("an operation has %d bytes, more than %d", len(raw), MaxOp)
	}
	if len(raw) < sigSize {
		return SignedOp{}, fmt.Errorf("an operation: %w", errShort)
	}
	body := raw[:len(raw)-sigSize]
	r := reader{rest: body}
	r.version()
	op := Op{Space: r.id(), Author: r.key(), Verb: Verb(r.u8()), At: time.UnixMilli(r.i64()).UTC()}
	copy(op.Nonce[:], r.take(len(op.Nonce)))
	if op.Verb < Out || op.Verb > Remove {
		r.fail("there is no operation %d", op.Verb)
	}
	r.arguments(&op)
	if err := r.end(); err != nil {
		return SignedOp{}, fmt.Errorf("an operation: %w", err)
	}
	return SignedOp{op: op, raw: raw, id: sha256.Sum256(body)}, nil
}

func (r *reader) arguments(op *Op) {
	if op.Verb == Inp || op.Verb == Cas {
		op.Template = r.fields(true)
	}
	if op.Verb == Renew || op.Verb == Remove {
		op.Target = r.id()
	}
	if op.Verb == Out || op.Verb == Cas || op.Verb == Renew {
		ms := r.i64()
		if ms < 0 || ms > maxLease.Milliseconds() {
			r.fail("a lease of %d ms is not possible", ms)
		}
		op.Lease = time.Duration(ms) * time.Millisecond
	}
	if op.Verb == Out || op.Verb == Cas {
		op.Tuple = r.fields(false)
		op.Readers, op.Takers = r.keys(), r.keys()
	}
}

// Op returns the operation. Its slices must not be modified.
func (s SignedOp) Op() Op { return s.op }

// ID returns the operation's name.
func (s SignedOp) ID() ID { return s.id }

// Bytes returns the encoding, which [DecodeOp] reads. It must not be modified.
func (s SignedOp) Bytes() []byte { return s.raw }

// Verify checks the signature and remembers success, so that it can run in parallel before [Space.Apply].
func (s *SignedOp) Verify() error {
	if s.verified {
		return nil
	}
	if len(s.raw) < sigSize {
		return errors.New("it is not signed")
	}
	body, signature := s.raw[:len(s.raw)-sigSize], s.raw[len(s.raw)-sigSize:]
	if s.op.Author.IsZero() || !s.op.Author.Verify(purpose, body, signature) {
		return fmt.Errorf("it is not signed by %v, who is said to be its author", s.op.Author)
	}
	s.verified = true
	return nil
}
