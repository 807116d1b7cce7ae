package segment

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func room(n int) []byte { return make([]byte, n) }

// one reads a frame back, and checks that nothing is left.
func one(t *testing.T, frame []byte, want Kind) []byte {
	t.Helper()
	r := NewReader(bytes.NewReader(frame))
	kind, body, err := r.Next(room)
	if err != nil || kind != want {
		t.Fatalf("kind %d, %v", kind, err)
	}
	body = bytes.Clone(body)
	if _, _, err := r.Next(room); err != io.EOF {
		t.Fatalf("behind the frame: %v", err)
	}
	return body
}

func TestFramesComeBackAsTheyWere(t *testing.T) {
	hello := Hello{Session: [16]byte{1, 2, 15: 3}, Flags: Degrade, Member: 2, Members: 3, MinMembers: 2, Generation: 7, Segment: 16 << 10,
		Limit: 1 << 40, Frames: 99, Schedule: "strict", Shares: "2of3", Service: strings.Repeat("s", MaxText)}
	if got, err := ParseHello(one(t, hello.Append(nil), KindHello)); err != nil || got != hello {
		t.Errorf("%+v, %v", got, err)
	}
	welcome := Welcome{Limit: 5, Frames: 6}
	if got, err := ParseWelcome(one(t, welcome.Append(nil), KindWelcome)); err != nil || got != welcome {
		t.Errorf("%+v, %v", got, err)
	}
	ack := Ack{Units: 1 << 60, Limit: 2}
	if got, err := ParseAck(one(t, ack.Append(nil), KindAck)); err != nil || got != ack {
		t.Errorf("%+v, %v", got, err)
	}
	fin := Fin{Unit: 3, Offset: 4}
	if got, err := ParseFin(one(t, fin.Append(nil), KindFin)); err != nil || got != fin {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParsePing(one(t, AppendPing(nil, KindPong, 77), KindPong)); err != nil || got != 77 {
		t.Errorf("%d, %v", got, err)
	}
	data := Data{Frame: 9, Unit: 8, Offset: 7, Size: 6}
	frame := append(make([]byte, DataOverhead), "payload"...)
	data.Put(frame, 7)
	SetFrame(frame, 10)
	data.Frame = 10
	if got, payload, err := ParseData(one(t, frame, KindData)); err != nil || got != data || string(payload) != "payload" {
		t.Errorf("%+v, %q, %v", got, payload, err)
	}
}

func TestCloseIsForPeople(t *testing.T) {
	last, err := ParseClose(one(t, Close{Refused, "no\x1b[2Jservice\xff" + strings.Repeat("é", 200)}.Append(nil), KindClose))
	if err != nil || last.Code != Refused || !strings.HasPrefix(last.Why, "no?[2Jservice") || len(last.Why) > maxWhy {
		t.Errorf("%+v, %v", last, err)
	}
}

func TestBadFrames(t *testing.T) {
	good := Hello{Members: 2, MinMembers: 1, Segment: 1000, Service: "ssh"}
	change := func(f func(*Hello)) []byte {
		h := good
		f(&h)
		return h.Append(nil)[HeaderSize:]
	}
	body := good.Append(nil)[HeaderSize:]
	for name, bad := range map[string][]byte{
		"empty":         {},
		"cut":           body[:len(body)-1],
		"more":          append(bytes.Clone(body), 0),
		"version":       append([]byte{Version + 1}, body[1:]...),
		"flags":         change(func(h *Hello) { h.Flags = 0x80 }),
		"no members":    change(func(h *Hello) { h.Members = 0 }),
		"member beyond": change(func(h *Hello) { h.Member = 2 }),
		"needs none":    change(func(h *Hello) { h.MinMembers = 0 }),
		"needs more":    change(func(h *Hello) { h.MinMembers = 3 }),
		"no segment":    change(func(h *Hello) { h.Segment = DataOverhead - 1 }),
		"huge segment":  change(func(h *Hello) { h.Segment = 1 << 31 }),
		"escape":        change(func(h *Hello) { h.Service = "\x1b[2J" }),
	} {
		if h, err := ParseHello(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
	for name, bad := range map[string][]byte{
		"kind 0":       {0, 0, 0, 0},
		"kind 9":       {9, 0, 0, 0},
		"long ping":    {byte(KindPing), 0xff, 0xff, 0xff},
		"long segment": {byte(KindData), 1, 0, 1},
	} {
		if _, _, err := NewReader(bytes.NewReader(bad)).Next(room); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := 1; n < 20; n++ {
		if _, _, err := NewReader(bytes.NewReader((Ack{}).Append(nil)[:n])).Next(room); err != io.ErrUnexpectedEOF {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
}

// Sums of a segment's numbers and sizes never wrap around.
func TestNumbersAreBounded(t *testing.T) {
	const most = 1 << 62
	for name, c := range map[string]struct {
		d  Data
		ok bool
	}{
		"the last ones":   {Data{most, most, most, 1<<32 - 1}, true},
		"frame beyond":    {Data{Frame: most + 1}, false},
		"unit beyond":     {Data{Unit: most + 1}, false},
		"offset beyond":   {Data{Offset: most + 1}, false},
		"a size of 4 GiB": {Data{Size: 1<<32 - 1}, true},
	} {
		frame := make([]byte, DataOverhead)
		c.d.Put(frame, 0)
		d, _, err := ParseData(frame[HeaderSize:])
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrMalformed) || c.ok && d != c.d {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

// What is read and written again is the same; nothing a stranger sends makes it panic or ask for much room.
func FuzzReader(f *testing.F) {
	f.Add(Hello{Members: 2, MinMembers: 1, Segment: 1000, Schedule: "fast", Service: "ssh"}.Append(nil))
	f.Add(AppendPing(Ack{1, 2}.Append(Welcome{3, 4}.Append(nil)), KindPing, 5))
	f.Add(Close{Failed, "why"}.Append(Fin{1, 2}.Append(nil)))
	data := append(make([]byte, DataOverhead), "payload"...)
	Data{1, 2, 3, 7}.Put(data, 7)
	f.Add(data)
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := NewReader(bytes.NewReader(stream))
		for {
			kind, body, err := r.Next(func(n int) []byte {
				if n > MaxData {
					t.Fatalf("asks for %d bytes", n)
				}
				return make([]byte, n)
			})
			if err != nil {
				return
			}
			again, err := rewrite(kind, body)
			if err != nil {
				if !errors.Is(err, ErrMalformed) {
					t.Fatal(err)
				}
				continue
			}
			if want := append([]byte{byte(kind), 0, byte(len(body) >> 8), byte(len(body))}, body...); len(body) < 1<<16 && !bytes.Equal(again, want) {
				t.Errorf("kind %d: %x was read, and %x written", kind, want, again)
			}
		}
	})
}

func rewrite(kind Kind, body []byte) ([]byte, error) {
	switch kind {
	case KindHello:
		h, err := ParseHello(body)
		if err != nil {
			return nil, err
		}
		return h.Append(nil), nil
	case KindWelcome:
		w, err := ParseWelcome(body)
		return w.Append(nil), err
	case KindData:
		d, payload, err := ParseData(body)
		frame := append(make([]byte, DataOverhead), payload...)
		d.Put(frame, len(payload))
		return frame, err
	case KindAck:
		a, err := ParseAck(body)
		return a.Append(nil), err
	case KindFin:
		f, err := ParseFin(body)
		return f.Append(nil), err
	case KindClose:
		y, err := ParseClose(body)
		if err == nil && y.Why != string(body[1:]) {
			return nil, ErrMalformed // its text was made printable
		}
		return y.Append(nil), err
	}
	n, err := ParsePing(body)
	return AppendPing(nil, kind, n), err
}
