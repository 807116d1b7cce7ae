package space

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/identity"
)

// An operation of each kind, as it goes over the wire: what is signed must stay the same for ever.
func TestEncodingIsKept(t *testing.T) {
	key, err := identity.NewKey(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for verb := Out; verb <= Remove; verb++ {
		op := Op{Space: ID{1, 2, 3}, Author: key, Verb: verb, At: start, Nonce: [16]byte{9},
			Template: Template{String("a"), Any(), AnyOf(TypeInt), AnyOf(TypeString)},
			Tuple:    Tuple{String("ä"), Int(-2), Bytes([]byte{0}), Bool(true)},
			Lease:    90 * time.Second, Readers: []identity.Key{Anyone}, Takers: []identity.Key{key, Anyone}, Target: ID{4}}
		raw := op.appendTo(nil)
		lines = append(lines, verb.String()+" "+hex.EncodeToString(raw))
		back, err := DecodeOp(append(raw, make([]byte, sigSize)...))
		if err != nil || !bytes.Equal(back.op.appendTo(nil), raw) {
			t.Errorf("%v does not come back: %v", verb, err)
		}
	}
	file := filepath.Join("testdata", "ops.golden")
	got := strings.Join(lines, "\n") + "\n"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%v\ngot\n%s", err, got)
	}
}

func TestFieldsAsJSON(t *testing.T) {
	got, err := json.Marshal([]Field{String("a\"ü"), Int(-1), Bytes([]byte{1, 255}), Bool(false), Any(), AnyOf(TypeInt)})
	if want := `[{"string":"a\"ü"},{"int":-1},{"bytes":"01ff"},{"bool":false},{"any":""},{"any":"int"}]`; err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

func FuzzDecodeOp(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("testdata", "ops.golden"))
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(golden)) {
		_, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		raw, err := hex.DecodeString(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(raw, make([]byte, sigSize)...))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		op, err := DecodeOp(raw)
		if err != nil {
			return
		}
		if again := op.op.appendTo(nil); !bytes.Equal(again, raw[:len(raw)-sigSize]) {
			t.Errorf("%x encodes to %x", raw, again)
		}
		s, err := New(Config{Name: op.op.Space, Limits: DefaultLimits()})
		if err != nil {
			t.Fatal(err)
		}
		op.verified = true // whatever anybody can sign
		s.Apply(op.op.At, op)
		restored, err := Restore(Config{Name: op.op.Space, Limits: DefaultLimits()}, s.Snapshot())
		if s.Usage().Tuples == 0 && (err != nil || restored.Hash() != s.Hash()) {
			t.Errorf("restored: %v", err)
		}
	})
}

func FuzzDecodeResult(f *testing.F) {
	f.Add(Result{Status: Clock, Version: 3, Now: start, Detail: "why"}.Encode())
	f.Add(binary.BigEndian.AppendUint16(Result{Status: OK}.Encode()[:22], 65535))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if r, err := DecodeResult(raw); err == nil && !bytes.Equal(r.Encode(), raw) {
			t.Errorf("%x encodes to %x", raw, r.Encode())
		}
	})
}

func FuzzDecodeQuery(f *testing.F) {
	q, err := Query{Template: Template{String("a"), Any()}, After: 1, Limit: 2, Since: 3}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(q)
	f.Fuzz(func(t *testing.T, raw []byte) {
		q, err := DecodeQuery(raw)
		if err != nil {
			return
		}
		if again, err := q.Encode(); err != nil || !bytes.Equal(again, raw) {
			t.Errorf("%x encodes to %x, %v", raw, again, err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	config := Config{Limits: DefaultLimits()}
	s, err := New(config)
	if err != nil {
		f.Fatal(err)
	}
	id, err := identity.New()
	if err != nil {
		f.Fatal(err)
	}
	op, err := out(time.Hour, String("x")).Sign(id, start)
	if err != nil {
		f.Fatal(err)
	}
	s.Apply(start, op)
	f.Add(s.Snapshot())
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s, err := Restore(config, raw); err == nil {
			s.Advance(start.Add(1000 * time.Hour))
			if _, err := Restore(config, s.Snapshot()); err != nil {
				t.Error(err)
			}
		}
	})
}
