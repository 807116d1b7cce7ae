package inspect

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func checkFlow(t *testing.T, f *Flow) {
	t.Helper()
	for _, n := range f.Names {
		if n.Name == "" || strings.ContainsFunc(n.Name, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("name %q is not printable", n.Name)
		}
	}
	for _, r := range f.Requests {
		if strings.ContainsFunc(r, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("request %q is not printable", r)
		}
	}
}

func FuzzUDP(f *testing.F) {
	f.Add(uint16(53), []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05wages\x07example\x00\x00\x01\x00\x01"))
	f.Add(uint16(443), examples[0].whole(f))
	f.Add(uint16(443), examples[1].whole(f))
	f.Add(uint16(51820), append([]byte{4, 0, 0, 0}, make([]byte, 60)...))
	f.Fuzz(func(t *testing.T, port uint16, data []byte) {
		var flow Flow
		flow.UDP(50000, port, data)
		flow.UDP(port, 50000, data)
		checkFlow(t, &flow)
	})
}

// FuzzInitialPayload fuzzes what stands behind the protection of an Initial, where random bytes seldom come.
func FuzzInitialPayload(f *testing.F) {
	f.Add(unhex(f, exampleCrypto))
	f.Add([]byte{2, 0, 0, 0, 0, 6, 0, 1, 1})
	f.Fuzz(func(t *testing.T, payload []byte) {
		var stream prefix
		cryptoFrames(payload, func(offset uint64, data []byte) { stream.insert(offset, data) })
		if name, done := serverName(stream.bytes()); name != "" && !done {
			t.Errorf("name %q of a hello that is not whole", name)
		}
	})
}

// FuzzHelloInPieces cuts a hello at places of the fuzzer's choice, and sends the frames in its order over its packets:
// the name is read once the last is there, and never before.
func FuzzHelloInPieces(f *testing.F) {
	f.Add(false, []byte{200, 60, 130}, []byte{3, 1}, []byte{2})
	f.Add(true, []byte{1, 2, 3, 4}, []byte{4, 3, 2, 1}, []byte{1, 1, 1})
	f.Fuzz(func(t *testing.T, second bool, cuts, order, packets []byte) {
		e := examples[0]
		if second {
			e = examples[1]
		}
		slices.Sort(cuts)
		cuts = slices.Compact(cuts)
		var frames [][]byte
		from := 0
		for _, cut := range append(cuts[:min(len(cuts), 20)], exampleHello) {
			if to := int(cut); from < to && to <= exampleHello {
				frames = append(frames, frame(t, from, to))
				from = to
			}
		}
		for i, with := range order {
			a, b := i%len(frames), int(with)%len(frames)
			frames[a], frames[b] = frames[b], frames[a]
		}
		var flow Flow
		for number := byte(0); len(frames) > 0; number++ {
			if len(flow.Names) != 0 {
				t.Fatalf("%v with %d frames to come", flow.Names, len(frames))
			}
			n := 1
			if len(packets) > 0 {
				n, packets = min(1+int(packets[0])%4, len(frames)), packets[1:]
			}
			flow.UDP(50000, 443, e.packet(t, number, frames[:n]...))
			frames = frames[n:]
		}
		if !reflect.DeepEqual(flow.Names, exampleName) {
			t.Fatalf("%v", flow.Names)
		}
	})
}

func FuzzTCP(f *testing.F) {
	f.Add(uint16(443), clientHello(f, "bank.example"))
	f.Add(uint16(80), []byte("GET / HTTP/1.1\r\nHost: wages.example\r\n\r\n"))
	f.Add(uint16(53), []byte("\x00\x1f\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05wages\x07example\x00\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, port uint16, data []byte) {
		var whole, pieces Flow
		whole.TCP(true, 50000, port, 0, true, nil)
		whole.TCP(true, 50000, port, 1, false, data)
		checkFlow(t, &whole)
		pieces.TCP(true, 50000, port, 0, true, nil)
		for i := len(data); i > 0; i -= 3 { // backwards
			pieces.TCP(true, 50000, port, 1+uint32(max(i-3, 0)), false, data[max(i-3, 0):i])
		}
		if len(data) < prefixLimit && whole.Protocol != pieces.Protocol {
			t.Errorf("whole %q, in pieces %q", whole.Protocol, pieces.Protocol)
		}
	})
}

// FuzzPrefix compares the reassembly with a plain one: each byte where its piece put it, as far as no byte is missing.
func FuzzPrefix(f *testing.F) {
	f.Add([]byte{0, 5, 3, 9, 8, 200})
	f.Fuzz(func(t *testing.T, cuts []byte) {
		stream := make([]byte, 512)
		for i := range stream {
			stream[i] = byte(i * 7)
		}
		var p prefix
		have := make([]bool, len(stream))
		for ; len(cuts) >= 2; cuts = cuts[2:] {
			from, to := int(cuts[0]), int(cuts[0])+int(cuts[1])
			p.insert(uint64(from), stream[from:to])
			for i := from; i < to; i++ {
				have[i] = true
			}
		}
		want := 0
		for want < len(have) && have[want] {
			want++
		}
		if got := p.bytes(); !bytes.Equal(got, stream[:want]) {
			t.Errorf("%d bytes, want %d", len(got), want)
		}
	})
}
