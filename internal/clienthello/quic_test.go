package clienthello

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"testing"
)

// example is the client Initial that an RFC prints: its keys, so that the derivation is tested too, its header before
// protection, and how it begins and ends on the wire.
type example struct {
	rfc          string
	key, iv, hp  string
	header       string
	begins, ends string
}

var examples = []example{
	{
		rfc: "RFC 9001 appendix A",
		key: "1f369613dd76d5467730efcbe3b1a22d", iv: "fa044b2f42a3fd3b46fb255c", hp: "9f50449e04a0e810283a1e9933adedd2",
		header: "c300000001088394c8f03e5157080000449e00000002",
		begins: "c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11", ends: "e221af44860018ab0856972e194cd934",
	},
	{
		rfc: "RFC 9369 appendix A",
		key: "8b1a0bc121284290a29e0971b5cd045d", iv: "91f73e2351d8fa91660e909f", hp: "45b95e15235d6f45a6b19cbcb0294ba9",
		header: "d36b3343cf088394c8f03e5157080000449e00000002",
		begins: "d76b3343cf088394c8f03e5157080000449ea0c95e82ffe67b6abcdb4298b485", ends: "a18b2faa745b6fe189cf772a9f84cbfc",
	},
}

// exampleCrypto is the CRYPTO frame of both RFCs; the name in it is example.com.
const exampleCrypto = "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c00000413011302" +
	"010000c000000010000e00000b6578616d706c652e636f6dff01000100000a00080006001d0017001800100007000504616c706e00050005" +
	"0100000000003300260024001d00209370b2c9caa47fbabaf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b0003020304000d" +
	"0010000e0403050306030203080408050806002d00020101001c00024001003900320408ffffffffffffffff05048000ffff07048000ffff" +
	"0801100104800075300901100f088394c8f03e51570806048000ffff"

var exampleName = []string{"example.com"}

// flow has the names of one flow of UDP.
type flow struct {
	names []string
	quic  QUIC
}

func (f *flow) take(datagram []byte) {
	for _, h := range f.quic.Read(datagram) {
		f.names = append(f.names, h.ServerName)
	}
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// protect protects an Initial as its sender does. The header ends in a packet number of four bytes.
func (e example) protect(t testing.TB, header, payload []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(unhex(t, e.key))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := unhex(t, e.iv)
	number := len(header) - 4
	for i := range 4 {
		nonce[8+i] ^= header[number+i]
	}
	packet := aead.Seal(append([]byte(nil), header...), nonce, payload, header)
	hp, err := aes.NewCipher(unhex(t, e.hp))
	if err != nil {
		t.Fatal(err)
	}
	var mask [16]byte
	hp.Encrypt(mask[:], packet[number+4:number+20])
	packet[0] ^= mask[0] & 0x0f
	for i := range 4 {
		packet[number+i] ^= mask[1+i]
	}
	return packet
}

// whole is the packet that the RFC prints.
func (e example) whole(t testing.TB) []byte {
	payload := make([]byte, 1162)
	copy(payload, unhex(t, exampleCrypto))
	return e.protect(t, unhex(t, e.header), payload)
}

// packet is an Initial of the example's connection with this payload, padded where it is short.
func (e example) packet(t testing.TB, number byte, frames ...[]byte) []byte {
	payload := bytes.Join(frames, []byte{0, 1, 0}) // PADDING and PING between
	payload = append(payload, make([]byte, max(20-len(payload), 0))...)
	header := unhex(t, e.header)
	header = header[:len(header)-6]
	length := 4 + len(payload) + 16
	return e.protect(t, append(header, 0x40|byte(length>>8), byte(length), 0, 0, 0, number), payload)
}

// frame is a CRYPTO frame with part of the example's hello.
func frame(t testing.TB, from, to int) []byte {
	hello := unhex(t, exampleCrypto)[4:]
	return append([]byte{6, 0x40 | byte(from>>8), byte(from), 0x40 | byte((to-from)>>8), byte(to - from)}, hello[from:to]...)
}

const exampleHello = 241 // bytes

func TestQUICNameOfTheRFCs(t *testing.T) {
	for _, e := range examples {
		packet := e.whole(t)
		if !bytes.HasPrefix(packet, unhex(t, e.begins)) || !bytes.HasSuffix(packet, unhex(t, e.ends)) {
			t.Fatalf("%s: the packet is another one: %x", e.rfc, packet)
		}
		var f flow
		f.take(packet)
		if !slices.Equal(f.names, exampleName) {
			t.Errorf("%s: %v", e.rfc, f.names)
		}
		if n := Initials(packet); n != 1 {
			t.Errorf("%s: %d Initials", e.rfc, n)
		}
	}
}

// The two versions number their packet types differently, and what is an Initial of one is none of the other.
func TestInitialsAreThoseOfTheVersion(t *testing.T) {
	v1, v2 := examples[0].whole(t), examples[1].whole(t)
	for _, c := range []struct {
		name   string
		packet []byte
		want   int
	}{
		{"v1", v1, 1}, {"v2", v2, 1},
		{"both in one datagram", slices.Concat(v2, v1), 2},
		{"v1 Handshake", append([]byte{v1[0] | 0x20}, v1[1:]...), 0},
		{"v2 Handshake", append([]byte{v2[0] | 0x30}, v2[1:]...), 0},
		{"v1 Retry", append([]byte{v1[0] | 0x30}, v1[1:]...), 0},
		{"v2 Retry", append([]byte{v2[0] &^ 0x30}, v2[1:]...), 0},
		{"v1 with the bits of v2's Initial", append([]byte{v2[0]}, v1[1:]...), 0},
		{"v2 with the bits of v1's Initial", append([]byte{v1[0]}, v2[1:]...), 0},
		{"another version", append([]byte{0xc0, 0, 0, 0, 2}, v1[5:]...), 0},
		{"version negotiation", append([]byte{0xc0, 0, 0, 0, 0}, v1[5:]...), 0},
		{"short header", append([]byte{0x40}, v1[1:]...), 0},
		{"cut", v1[:len(v1)-1], 0},
	} {
		if got := Initials(c.packet); got != c.want {
			t.Errorf("%s: %d Initials, want %d", c.name, got, c.want)
		}
	}
}

func TestPacketsOfADatagram(t *testing.T) {
	long := func(first byte, version uint32) []byte { // a token of one byte, or a length of one
		p := binary.BigEndian.AppendUint32([]byte{first}, version)
		return append(p, 2, 'a', 'b', 1, 'c', 1, 't')
	}
	initial := append(long(0xc0, 1), 2, 'x', 'y')
	const v2, draft = 0x6b3343cf, 0xff00001d
	for _, c := range []struct {
		name     string
		datagram []byte
		kinds    []Kind
		rest     string
	}{
		{"version 1", slices.Concat(initial, long(0xe0, 1), long(0xd0, 1), []byte("Oshort")), []Kind{KindInitial, KindHandshake, KindEarlyData}, "Oshort"},
		{"version 2", slices.Concat(append(long(0xd0, v2), 2, 'x', 'y'), long(0xf0, v2), long(0xe0, v2)), []Kind{KindInitial, KindHandshake, KindEarlyData}, ""},
		{"a draft", slices.Concat(append(long(0xc0, draft), 0), []byte("Oshort")), []Kind{KindInitial}, "Oshort"},
		{"without the second bit", slices.Concat(long(0xa0, 1), []byte("Oshort")), []Kind{KindHandshake}, "Oshort"},
		{"Retry", slices.Concat(long(0xf0, 1), []byte("token")), []Kind{KindRetry}, ""},
		{"Retry of version 2", slices.Concat(long(0xc0, v2), []byte("token")), []Kind{KindRetry}, ""},
		{"version negotiation", long(0xc0, 0), nil, string(long(0xc0, 0))},
		{"cut", initial[:len(initial)-1], nil, string(initial[:len(initial)-1])},
		{"empty", nil, nil, ""},
	} {
		packets, rest := Packets(c.datagram)
		var kinds []Kind
		for _, p := range packets {
			kinds = append(kinds, p.Kind)
			if string(p.Destination) != "ab" || string(p.Source) != "c" {
				t.Errorf("%s: from %q to %q", c.name, p.Source, p.Destination)
			}
		}
		if !slices.Equal(kinds, c.kinds) || string(rest) != c.rest {
			t.Errorf("%s: %v and %q, want %v and %q", c.name, kinds, rest, c.kinds, c.rest)
		}
	}
}

// Clients cut the hello into frames, shuffle them, and put some in a second packet that another one follows.
func TestQUICNameInPieces(t *testing.T) {
	for _, e := range examples {
		ack := []byte{2, 0, 0, 0, 0}
		first := e.packet(t, 0, ack, frame(t, 200, exampleHello), frame(t, 0, 60))
		second := e.packet(t, 1, frame(t, 60, 130), frame(t, 130, 200))
		var f flow
		f.take(first)
		if len(f.names) != 0 {
			t.Fatalf("%s: a name from half a hello: %v", e.rfc, f.names)
		}
		f.take(append(second, first...)) // coalesced
		if !slices.Equal(f.names, exampleName) {
			t.Errorf("%s: %v", e.rfc, f.names)
		}
	}
}

// Pieces of two connections of one flow come mixed: each is put together by itself.
func TestQUICNamesOfTwoConnections(t *testing.T) {
	a, b := examples[0], examples[1]
	var f flow
	f.take(a.packet(t, 0, frame(t, 100, exampleHello)))
	f.take(b.packet(t, 0, frame(t, 0, 100)))
	if len(f.names) != 0 {
		t.Fatalf("a name from halves of two hellos: %v", f.names)
	}
	f.take(a.packet(t, 1, frame(t, 0, 100)))
	if !slices.Equal(f.names, exampleName) {
		t.Fatalf("%v", f.names)
	}
	f.names = nil
	f.take(a.whole(t))
	if len(f.names) != 0 {
		t.Errorf("the same hello again: %v", f.names)
	}
	f.take(b.packet(t, 1, frame(t, 100, exampleHello)))
	if !slices.Equal(f.names, exampleName) {
		t.Errorf("%v", f.names)
	}
}

func TestQUICDamagedInitialGivesNothing(t *testing.T) {
	for _, e := range examples {
		packet := e.whole(t)
		for _, at := range []int{6, 18, 25, len(packet) - 1} {
			damaged := append([]byte(nil), packet...)
			damaged[at] ^= 1
			var f flow
			f.take(damaged)
			if len(f.names) != 0 {
				t.Errorf("%s: byte %d damaged: %v", e.rfc, at, f.names)
			}
		}
	}
}

// A stranger can begin connections in one flow without end, each with crumbs of a hello far apart.
func TestHellosAreBounded(t *testing.T) {
	var stream Prefix
	for at := range uint64(Limit / 2) {
		stream.Insert(2*at+1, []byte{1})
	}
	if len(stream.held) > mostSpans {
		t.Errorf("%d pieces are kept", len(stream.held))
	}
	var h QUIC
	for n := range byte(3 * mostHellos) {
		destination := []byte{n, 2, 3, 4, 5, 6, 7, 8}
		keys, err := quicVersions[0].deriveInitial(destination)
		if err != nil {
			t.Fatal(err)
		}
		packet := sealWith(keys, destination, frame(t, 0, 100))
		if h.Read(packet); len(h.reading) > mostHellos {
			t.Fatalf("%d hellos are kept", len(h.reading))
		}
	}
	if len(h.reading) != mostHellos {
		t.Errorf("%d hellos are kept", len(h.reading))
	}
}

// sealWith protects an Initial of version 1 and packet number 0, in one byte.
func sealWith(k *initialKeys, destination, payload []byte) []byte {
	length := 1 + len(payload) + 16
	header := append([]byte{0xc0, 0, 0, 0, 1, byte(len(destination))}, destination...)
	header = append(header, 0, 0, 0x40|byte(length>>8), byte(length), 0)
	number := len(header) - 1
	packet := k.aead.Seal(append([]byte(nil), header...), k.iv, payload, header)
	var mask [16]byte
	k.header.Encrypt(mask[:], packet[number+4:number+20])
	packet[0] ^= mask[0] & 0x0f
	packet[number] ^= mask[1]
	return packet
}

// FuzzInitialPayload fuzzes what stands behind the protection of an Initial, where random bytes seldom come.
func FuzzInitialPayload(f *testing.F) {
	f.Add(unhex(f, exampleCrypto))
	f.Add([]byte{2, 0, 0, 0, 0, 6, 0, 1, 1})
	f.Fuzz(func(t *testing.T, payload []byte) {
		var stream Prefix
		cryptoFrames(payload, func(offset uint64, data []byte) { stream.Insert(offset, data) })
		if h, err := Parse(stream.Bytes()); h.ServerName != "" && err == ErrIncomplete {
			t.Errorf("name %q of a hello that is not whole", h.ServerName)
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
		var got flow
		for number := byte(0); len(frames) > 0; number++ {
			if len(got.names) != 0 {
				t.Fatalf("%v with %d frames to come", got.names, len(frames))
			}
			n := 1
			if len(packets) > 0 {
				n, packets = min(1+int(packets[0])%4, len(frames)), packets[1:]
			}
			got.take(e.packet(t, number, frames[:n]...))
			frames = frames[n:]
		}
		if !slices.Equal(got.names, exampleName) {
			t.Fatalf("%v", got.names)
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
		var p Prefix
		have := make([]bool, len(stream))
		for ; len(cuts) >= 2; cuts = cuts[2:] {
			from, to := int(cuts[0]), int(cuts[0])+int(cuts[1])
			p.Insert(uint64(from), stream[from:to])
			for i := from; i < to; i++ {
				have[i] = true
			}
		}
		want := 0
		for want < len(have) && have[want] {
			want++
		}
		if got := p.Bytes(); !bytes.Equal(got, stream[:want]) {
			t.Errorf("%d bytes, want %d", len(got), want)
		}
	})
}
