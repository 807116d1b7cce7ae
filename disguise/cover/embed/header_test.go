package embed

import (
	"bytes"
	"encoding/hex"
	"testing"
)

func TestHeaderCounts(t *testing.T) {
	h := Header{
		{Kind: Literal, Bytes: 1, Value: []byte{0xee}},
		{Kind: Counter, Bytes: 2, Value: []byte{0xff, 0xfe}, Step: 1},
		{Kind: Counter, Bytes: 2, Value: []byte{0xff, 0xfe}, Step: 1, Little: true},
		{Kind: Steps, Bytes: 1, Value: []byte{5}, Steps: []uint64{99, 10, 255}},
	}
	if err := h.check(true, 3); err != nil {
		t.Fatal(err)
	}
	w := newWriter(h)
	for i, want := range []string{"ee fffe fffe 05", "ee ffff 00ff 0f", "ee 0000 01ff 0e", "ee fffe fffe 05"} {
		b := make([]byte, h.Size())
		w.write(b)
		expected, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(want), []byte(" "), nil)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, expected) {
			t.Errorf("packet %d: %x, want %s", i, b, want)
		}
		w.next(3)
	}
	short := []byte{0, 0}
	if w.write(short); short[0] != 0xee {
		t.Errorf("%x", short)
	}
}

// Numbers that begin at random, and what belongs to a connection, differ between connections.
func TestHeaderOfEachConnection(t *testing.T) {
	h := Header{{Kind: Counter, Bytes: 4, Step: 160}, {Kind: Session, Bytes: 4}, {Kind: Random, Bytes: 4}}
	a, b := newWriter(h), newWriter(h)
	first, again, other := make([]byte, 12), make([]byte, 12), make([]byte, 12)
	a.write(first)
	a.write(again)
	b.write(other)
	if !bytes.Equal(first[:8], again[:8]) || bytes.Equal(first[8:], again[8:]) {
		t.Errorf("%x, then %x", first, again)
	}
	for i := 0; i < 12; i += 4 {
		if bytes.Equal(first[i:i+4], other[i:i+4]) {
			t.Errorf("two connections have %x", first[i:i+4])
		}
	}
}
