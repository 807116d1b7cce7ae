package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/block"
)

// forge seals a block as the bridge would, with any content.
func forge(l *Link, f block.Function, data []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.keys.send
	h := block.Header{Number: uint32(s.next), Data: len(data), Function: f}
	s.next++
	return s.codec.Seal(nil, h, data)
}

// ackOf is the data of an ack.
func ackOf(next, limit uint64, epoch byte, number uint32, ranges ...uint32) []byte {
	b := binary.BigEndian.AppendUint64(nil, next)
	b = binary.BigEndian.AppendUint64(b, limit)
	b = binary.BigEndian.AppendUint32(append(b, epoch), number)
	b = binary.BigEndian.AppendUint32(b, 1000)
	for _, r := range ranges {
		b = binary.BigEndian.AppendUint32(b, r)
	}
	return b
}

func at(offset uint64, p ...byte) []byte {
	return append(binary.BigEndian.AppendUint64(nil, offset), p...)
}

// still is an open link with nothing under way: the client wrote 100 bytes, and the bridge has them. Nothing carries bytes any more.
func still(t *testing.T) (w *world, c *Conn) {
	w = newWorld(t, Options{})
	l, _, end := w.open(line{})
	if _, err := l.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(w.other(), make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	synctest.Wait()
	if s := l.Stats(); !s.PostQuantum || s.Conns[0].InFlight != 0 {
		t.Fatal(describe(s))
	}
	end(nil)
	w.joins.Wait()
	c, err := l.Join([]byte{1}, false)
	if err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 4000)
	if _, err := c.Fill(head); err != nil {
		t.Fatal(err)
	}
	far, rest, err := w.accept(head, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := far.Take(rest); err != nil {
		t.Fatal(err)
	}
	return w, c
}

func TestHostileBlocks(t *testing.T) {
	type one struct {
		f    block.Function
		data []byte
	}
	const far = 1 << 63
	for name, c := range map[string]struct {
		blocks []one
		want   string // why the link ends; nothing if it lives on
	}{
		"bytes that were never sent":     {[]one{{block.Ack, ackOf(101, 0, 1, 0)}}, "of which 100 were sent"},
		"a range that was never sent":    {[]one{{block.Ack, ackOf(50, 0, 1, 0, 10, 100)}}, "of which 100 were sent"},
		"an empty range":                 {[]one{{block.Ack, ackOf(50, 0, 1, 0, 10, 0)}}, "of which 100 were sent"},
		"a range that wraps":             {[]one{{block.Ack, ackOf(1<<64-1, 0, 1, 0, 10, 10)}}, "beyond all offsets"},
		"half an ack":                    {[]one{{block.Ack, ackOf(0, 0, 1, 0)[:20]}}, "wrong length"},
		"half a range":                   {[]one{{block.Ack, append(ackOf(0, 0, 1, 0), 1, 2, 3, 4)}}, "wrong length"},
		"too many ranges":                {[]one{{block.Ack, ackOf(0, 0, 1, 0, make([]uint32, 66)...)}}, "wrong length"},
		"an ack of an epoch to come":     {[]one{{block.Ack, ackOf(100, 0, 9, 0)}}, ""},
		"an ack of a number to come":     {[]one{{block.Ack, ackOf(100, 0, 1, 1<<32-1)}}, ""},
		"an ack of long ago":             {[]one{{block.Ack, ackOf(0, 0, 0, 0)}}, ""},
		"the largest limit":              {[]one{{block.Ack, ackOf(100, 1<<64-1, 1, 0)}}, ""},
		"half an offset":                 {[]one{{block.Data, at(0)[:7]}}, "without an offset"},
		"bytes beyond the limit":         {[]one{{block.Data, at(firstCredit, 1)}}, "more than it may send"},
		"bytes at the last offset":       {[]one{{block.Data, at(1<<64-1, 1, 2)}}, "more than it may send"},
		"bytes far away":                 {[]one{{block.Data, at(far, 1)}}, "more than it may send"},
		"two ends":                       {[]one{{block.Fin, at(10)}, {block.Fin, at(11)}}, "two ends"},
		"an end before what came":        {[]one{{block.Data, at(0, 1, 2, 3)}, {block.Fin, at(2)}}, "before what came"},
		"an end beyond the limit":        {[]one{{block.Fin, at(far)}}, "beyond what it may send"},
		"the last end":                   {[]one{{block.Fin, at(1<<64 - 1)}}, "without an end"},
		"bytes behind the end":           {[]one{{block.Fin, at(2)}, {block.Data, at(1, 1, 2)}}, "behind the end"},
		"an end of a wrong size":         {[]one{{block.Fin, at(2, 1)}}, "without a length"},
		"a reset of a wrong size":        {[]one{{block.Rst, nil}}, "without a code"},
		"a reset":                        {[]one{{block.Rst, []byte{byte(Forbidden)}}}, "the target is forbidden"},
		"a reset with a new code":        {[]one{{block.Rst, []byte{77}}}, "code 77"},
		"an unknown function":            {[]one{{99, nil}}, "function 99"},
		"a second hello":                 {[]one{{block.NewServer, make([]byte, 8)}}, "function 5"},
		"a short datagram":               {[]one{{block.Datagram, []byte{1}}}, "without a flow"},
		"a datagram":                     {[]one{{block.Datagram, []byte{1, 2}}}, ""},
		"an empty part of a rekey":       {[]one{{block.RekeyInit, []byte{2, 0, 0}}}, "empty part"},
		"a part behind the end":          {[]one{{block.RekeyInit, []byte{2, 0xff, 0xff, 1}}}, "behind the end of a rekey"},
		"a part of a rekey that is done": {[]one{{block.RekeyDone, []byte{1, 0, 0, 1}}}, ""},
		"a rekey that is no key":         {[]one{{block.RekeyInit, append([]byte{2, 0, 0}, bytes.Repeat([]byte{255}, rkiSize-1)...)}}, "keys"},
		"an answer to nothing":           {[]one{{block.RekeyDone, append([]byte{2, 0, 0}, make([]byte, rkrSize-1)...)}}, ""},
		"other content":                  {[]one{{block.Data, at(1, 11, 12)}, {block.Data, at(0, 20, 21, 22, 23)}, {block.Data, at(0, 30, 31, 32, 33)}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, conn := still(t)
				l := w.client
				for _, b := range c.blocks {
					if err := conn.Take(forge(w.bridge, b.f, b.data)); err != nil && l.Err() == nil {
						t.Fatal(err)
					}
				}
				err := l.Err()
				if c.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("it ends with %v", err)
				}
				if err != nil && c.blocks[0].f != block.Rst {
					told(t, w, conn)
				}
				if name == "other content" {
					if b := make([]byte, 9); err == nil {
						n, _ := l.Read(b)
						if !bytes.Equal(b[:n], []byte{20, 11, 12, 23}) {
							t.Errorf("%v was read", b[:n])
						}
					}
				}
				l.Reset(Closed)
				w.bridge.Reset(Closed)
			})
		})
	}
}

// told checks that the other side learns that it broke the rules.
func told(t *testing.T, w *world, c *Conn) {
	t.Helper()
	n, err := c.Wait(t.Context())
	if err != nil || n != resetSize {
		t.Fatalf("%d bytes wait, %v", n, err)
	}
	b := make([]byte, n)
	if _, err := c.Fill(b); err != nil {
		t.Fatal(err)
	}
	_ = w.bridge.conns[0].Take(b)
	var reset *ResetError
	if !errors.As(w.bridge.Err(), &reset) || reset.Code != BrokenRules || !reset.Remote {
		t.Errorf("the other side ends with %v", w.bridge.Err())
	}
	if _, err := c.Wait(t.Context()); err == nil {
		t.Error("the connection goes on")
	}
}

// Bytes of a stranger on a connection end it, and not the link.
func TestForeignBytesEndTheConnection(t *testing.T) {
	for name, change := range map[string]func(b, before []byte) []byte{
		"a bit of the header": func(b, _ []byte) []byte { b[3] ^= 1; return b },
		"a bit of the body":   func(b, _ []byte) []byte { b[20] ^= 1; return b },
		"a bit of the tag":    func(b, _ []byte) []byte { b[len(b)-1] ^= 1; return b },
		"a block again":       func(_, before []byte) []byte { return before },
		"nothing but zeros":   func(b, _ []byte) []byte { return make([]byte, len(b)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := still(t)
				before := forge(w.bridge, block.Data, at(0, 1, 2, 3))
				if err := c.Take(bytes.Clone(before)); err != nil {
					t.Fatal(err)
				}
				if err := c.Take(change(forge(w.bridge, block.Data, at(3, 4, 5, 6)), before)); err == nil {
					t.Error("it was taken")
				}
				if err := c.Take(forge(w.bridge, block.Data, at(3, 4, 5, 6))); err == nil {
					t.Error("the connection goes on")
				}
				if w.client.Err() != nil || w.client.Stats().Unread != 3 {
					t.Errorf("%v, %s", w.client.Err(), describe(w.client.Stats()))
				}
				w.client.Reset(Closed)
				w.bridge.Reset(Closed)
			})
		})
	}
}

// A client that forgets old epochs at once, so that it may begin the next, does not keep the bridge busy with key exchanges.
func TestRekeysAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		l, _, _ := w.open(line{delay: 10 * time.Millisecond})
		bridge := w.other()
		for bridge.Err() == nil {
			time.Sleep(time.Second)
			l.mu.Lock()
			l.keys.forget(l.keys.newest)
			l.rekey.start(l, time.Now())
			l.kick(time.Now())
			l.mu.Unlock()
			if s := l.Stats(); s.Epoch > 2 {
				t.Error(describe(s))
				bridge.Reset(Closed)
			}
		}
		if err := bridge.Err(); !strings.Contains(err.Error(), "three rekeys") {
			t.Error(err)
		}
		w.joins.Wait()
	})
}
