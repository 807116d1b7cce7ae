package link

import (
	"bytes"
	"encoding/binary"
	"testing"

	"heddle/disguise/block"
	"heddle/disguise/handshake"
)

// opened is a link of each kind: client and bridge, with a connection of each side that is open.
func opened(t testing.TB, w *world) (client, bridge *Conn) {
	t.Helper()
	l, c, err := Initiate(w.o, handshake.Hello{}, false)
	if err != nil {
		t.Fatal(err)
	}
	w.client = l
	b := make([]byte, 4000)
	if _, err := c.Fill(b); err != nil {
		t.Fatal(err)
	}
	far, rest, err := w.accept(b, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := far.Take(rest); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Fill(b); err != nil {
		t.Fatal(err)
	}
	if err := c.Take(b); err != nil {
		t.Fatal(err)
	}
	return c, far
}

// FuzzTake takes bytes of anybody, in pieces: on a connection that waits for the bridge's answer, on one of an open link behind a
// real block, and in datagrams. No such bytes are taken for a block.
func FuzzTake(f *testing.F) {
	f.Add([]byte{}, 1, true)
	f.Add(bytes.Repeat([]byte{7}, 200), 16, false)
	base := newWorld(f, Options{})
	f.Fuzz(func(t *testing.T, b []byte, piece int, datagrams bool) {
		w := base.fresh(t)
		c, far := opened(t, w)
		real := forge(w.bridge, block.Data, at(0, 1, 2, 3))
		_, waiting, err := Initiate(w.o, handshake.Hello{}, datagrams)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Take(real); err != nil {
			t.Fatal(err)
		}
		c.datagrams = datagrams
		piece = max(1, piece&0xfff)
		for _, c := range []*Conn{c, far, waiting} {
			defer c.l.Reset(Closed)
			for rest := bytes.Clone(b); len(rest) > 0; rest = rest[min(piece, len(rest)):] {
				if c.Take(rest[:min(piece, len(rest))]) != nil {
					break
				}
			}
			if c.l.Err() != nil || len(c.part) > block.MaxSize {
				t.Errorf("the link ends with %v, %d bytes are held", c.l.Err(), len(c.part))
			}
		}
		if s := w.client.Stats(); s.Received != 3 {
			t.Errorf("%d bytes were received", s.Received)
		}
	})
}

// FuzzBlocks opens blocks that a side with the keys sends: a function, a length, and so many bytes each. Whatever they say, the
// link keeps to its bounds, and goes on or tells the other side why not.
func FuzzBlocks(f *testing.F) {
	block1 := func(blocks ...[]byte) (script []byte) {
		for _, b := range blocks {
			script = append(binary.BigEndian.AppendUint16(append(script, b[0]), uint16(len(b)-1)), b[1:]...)
		}
		return script
	}
	with := func(f block.Function, b []byte) []byte { return append([]byte{byte(f)}, b...) }
	f.Add(block1(with(block.Ack, ackOf(50, 1<<20, 0, 1, 10, 10, 30, 5)), with(block.Data, at(5, 1, 2, 3)), with(block.Data, at(0, 1, 2, 3, 4, 5, 6))))
	f.Add(block1(with(block.Fin, at(7)), with(block.Data, at(0, 1, 2, 3, 4, 5, 6, 7))))
	f.Add(block1(with(block.Datagram, []byte{1, 2, 3}), with(block.Data, at(0)), with(block.Rst, []byte{1})))
	_, rki := handshake.StartRekey(1)
	f.Add(block1(with(block.RekeyInit, append([]byte{1, 0, 0}, rki[1:]...)), with(block.RekeyInit, append([]byte{1, 0, 0}, rki[1:]...))))
	base := newWorld(f, Options{Datagram: func(uint16, []byte) {}})
	f.Fuzz(func(t *testing.T, script []byte) {
		for _, client := range []bool{true, false} {
			w := base.fresh(t)
			c, far := opened(t, w)
			if !client {
				c, far = far, c
			}
			_, _ = c.l.Write(make([]byte, 100))
			_, _ = c.Fill(make([]byte, 4000))
			for s := script; len(s) >= 3; {
				n := min(int(binary.BigEndian.Uint16(s[1:])), len(s)-3)
				b := forge(far.l, block.Function(s[0]), s[3:3+n])
				s = s[3+n:]
				if c.Take(b) != nil || c.l.Err() != nil {
					break
				}
			}
			checkBounds(t, c)
			far.l.Reset(Closed)
		}
	})
}

func checkBounds(t *testing.T, c *Conn) {
	t.Helper()
	l := c.l
	if n := l.in.Buffered(); n > firstCredit || len(l.keys.receive) > maxEpochs || len(l.in.Ranges(1<<20)) > maxPieces {
		t.Errorf("%d bytes, %d epochs, %d pieces", n, len(l.keys.receive), len(l.in.Ranges(1<<20)))
	}
	defer l.Reset(Closed)
	if l.Err() == nil {
		if _, err := c.Fill(make([]byte, 2000)); err != nil {
			t.Error(err)
		}
		return
	}
	if _, ok := l.Err().(*ResetError); !ok && c.reset != BrokenRules {
		t.Errorf("the other side does not learn of %v", l.Err())
	}
}
