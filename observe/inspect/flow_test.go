package inspect

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/tls"
	"encoding/hex"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
)

// clientHello is the first flight of a real TLS client.
func clientHello(t testing.TB, name string) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: name}).Handshake()
		client.Close()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(server, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(server, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

func TestTLSNameOverSegmentsInAnyOrder(t *testing.T) {
	hello := clientHello(t, "bank.example")
	want := []Name{{Name: "bank.example", From: FromTLS}}
	for _, size := range []int{1, 7, 100, 1400} {
		for _, order := range []string{"forwards", "backwards", "twice"} {
			var f Flow
			f.TCP(true, 50000, 443, 0xffffff00, true, nil) // the sequence number wraps
			var at []int
			for i := 0; i < len(hello); i += size {
				switch order {
				case "forwards":
					at = append(at, i)
				case "backwards":
					at = append([]int{i}, at...)
				case "twice":
					at = append(at, i, i)
				}
			}
			for _, i := range at {
				f.TCP(true, 50000, 443, 0xffffff01+uint32(i), false, hello[i:min(i+size, len(hello))])
			}
			if !reflect.DeepEqual(f.Names, want) || f.Protocol != "TLS" {
				t.Errorf("%s, %d bytes a segment: %v %v", order, size, f.Protocol, f.Names)
			}
		}
	}
}

func TestTLSNameOverRecords(t *testing.T) {
	hello := clientHello(t, "bank.example")
	var cut []byte
	for body := hello[5:]; len(body) > 0; body = body[min(50, len(body)):] {
		n := min(50, len(body))
		cut = append(append(cut, 22, 3, 1, 0, byte(n)), body[:n]...)
	}
	var f Flow
	f.TCP(true, 50000, 443, 0, true, nil)
	f.TCP(true, 50000, 443, 1, false, cut)
	if len(f.Names) != 1 || f.Names[0].Name != "bank.example" {
		t.Errorf("%v", f.Names)
	}
}

func TestClearText(t *testing.T) {
	cases := []struct {
		name      string
		feed      func(f *Flow)
		protocol  string
		names     []Name
		requests  []string
		unclearly bool
	}{
		{"http", func(f *Flow) {
			f.TCP(true, 5000, 80, 1, false, []byte("GET /a?b HTTP/1.1\r\nHost: wages.example:8080\r\n\r\n"))
			f.TCP(false, 80, 5000, 1, false, []byte("HTTP/1.1 200 OK\r\n\r\n"))
		}, "HTTP", []Name{{"wages.example", FromHTTP}}, []string{"GET wages.example:8080/a?b"}, false},
		{"http, hostile", func(f *Flow) {
			f.TCP(true, 5000, 80, 1, false, []byte("GET /\x1b[31m HTTP/1.1\r\nHost: a\"b\r\n\r\n"))
		}, "HTTP", nil, nil, false},
		{"dns", func(f *Flow) {
			f.UDP(5000, 53, []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05wages\x07example\x00\x00\x01\x00\x01"))
		}, "DNS", []Name{{"wages.example", FromDNS}}, nil, false},
		{"dns, a name with an escape", func(f *Flow) {
			f.UDP(5000, 53, []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05wa\x1bes\x07example\x00\x00\x01\x00\x01"))
		}, "DNS", []Name{{`wa\x1bes.example`, FromDNS}}, nil, false},
		{"dns over tcp", func(f *Flow) {
			f.TCP(true, 5000, 53, 1, false, []byte("\x00\x1f\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05wages\x07example\x00\x00\x01\x00\x01"))
		}, "DNS", []Name{{"wages.example", FromDNS}}, nil, false},
		{"ssh", func(f *Flow) { f.TCP(true, 5000, 22, 1, false, []byte("SSH-2.0-x\r\n")) }, "SSH", nil, nil, true},
		{"wireguard data", func(f *Flow) { f.UDP(5000, 51820, append([]byte{4, 0, 0, 0}, make([]byte, 60)...)) }, "WireGuard", nil, nil, true},
		{"wireguard handshake", func(f *Flow) { f.UDP(5000, 51820, append([]byte{1, 0, 0, 0}, make([]byte, 144)...)) }, "WireGuard", nil, nil, true},
		{"not wireguard", func(f *Flow) { f.UDP(5000, 51820, append([]byte{1, 0, 0, 0}, make([]byte, 143)...)) }, "", nil, nil, true},
		{"noise", func(f *Flow) { f.TCP(true, 5000, 9, 1, false, bytes.Repeat([]byte{0xA5}, 99)) }, "", nil, nil, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var f Flow
			c.feed(&f)
			if f.Protocol != c.protocol || !reflect.DeepEqual(f.Names, c.names) || !reflect.DeepEqual(f.Requests, c.requests) ||
				f.Readable == c.unclearly {
				t.Errorf("%q %v %v readable %v", f.Protocol, f.Names, f.Requests, f.Readable)
			}
		})
	}
}

// The client Initial of RFC 9001 appendix A.2. Keys are those of appendix A.1, so that the derivation is tested too.
const (
	rfcDestination = "8394c8f03e515708"
	rfcKey         = "1f369613dd76d5467730efcbe3b1a22d"
	rfcIV          = "fa044b2f42a3fd3b46fb255c"
	rfcHeaderKey   = "9f50449e04a0e810283a1e9933adedd2"
	rfcHeader      = "c300000001088394c8f03e5157080000449e00000002"
	rfcCrypto      = "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c00000413011302" +
		"010000c000000010000e00000b6578616d706c652e636f6dff01000100000a00080006001d0017001800100007000504616c706e00050005" +
		"0100000000003300260024001d00209370b2c9caa47fbabaf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b0003020304000d" +
		"0010000e0403050306030203080408050806002d00020101001c00024001003900320408ffffffffffffffff05048000ffff07048000ffff" +
		"0801100104800075300901100f088394c8f03e51570806048000ffff"
	rfcStart = "c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11"
	rfcEnd   = "e221af44860018ab0856972e194cd934"
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// protectInitial protects an Initial as its sender does, with the keys of RFC 9001 appendix A.1. The header ends in a
// packet number of four bytes.
func protectInitial(t testing.TB, header, payload []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(unhex(t, rfcKey))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := unhex(t, rfcIV)
	number := len(header) - 4
	for i := range 4 {
		nonce[8+i] ^= header[number+i]
	}
	packet := aead.Seal(append([]byte(nil), header...), nonce, payload, header)
	hp, err := aes.NewCipher(unhex(t, rfcHeaderKey))
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

func rfcInitial(t testing.TB) []byte {
	payload := make([]byte, 1162)
	copy(payload, unhex(t, rfcCrypto))
	return protectInitial(t, unhex(t, rfcHeader), payload)
}

func TestQUICNameOfRFC9001(t *testing.T) {
	packet := rfcInitial(t)
	if !bytes.HasPrefix(packet, unhex(t, rfcStart)) || !bytes.HasSuffix(packet, unhex(t, rfcEnd)) {
		t.Fatalf("the packet is not that of the RFC: %x", packet)
	}
	var f Flow
	f.UDP(50000, 443, packet)
	if want := []Name{{"example.com", FromQUIC}}; !reflect.DeepEqual(f.Names, want) || f.Protocol != "QUIC" {
		t.Errorf("%q %v", f.Protocol, f.Names)
	}
}

// Clients cut the hello into frames, shuffle them, and put some in a second packet that another one follows.
func TestQUICNameInPieces(t *testing.T) {
	hello := unhex(t, rfcCrypto)[4:]
	frame := func(from, to int) []byte {
		return append([]byte{6, 0x40 | byte(from>>8), byte(from), 0x40 | byte((to-from)>>8), byte(to - from)}, hello[from:to]...)
	}
	packet := func(number byte, frames ...[]byte) []byte {
		payload := bytes.Join(frames, []byte{0, 1, 0}) // PADDING and PING between
		header := unhex(t, "c30000000108"+rfcDestination+"0000")
		length := 4 + len(payload) + 16
		return protectInitial(t, append(header, 0x40|byte(length>>8), byte(length), 0, 0, 0, number), payload)
	}
	ack := []byte{2, 0, 0, 0, 0}
	first := packet(0, ack, frame(200, len(hello)), frame(0, 60))
	second := packet(1, frame(60, 130), frame(130, 200))
	var f Flow
	f.UDP(50000, 443, first)
	if len(f.Names) != 0 {
		t.Fatalf("a name from half a hello: %v", f.Names)
	}
	f.UDP(50000, 443, append(second, first...)) // coalesced
	if len(f.Names) != 1 || f.Names[0].Name != "example.com" {
		t.Errorf("%v", f.Names)
	}
}

func TestQUICDamagedInitialGivesNothing(t *testing.T) {
	packet := rfcInitial(t)
	for _, at := range []int{6, 18, 25, len(packet) - 1} {
		damaged := append([]byte(nil), packet...)
		damaged[at] ^= 1
		var f Flow
		f.UDP(50000, 443, damaged)
		if len(f.Names) != 0 {
			t.Errorf("byte %d damaged: %v", at, f.Names)
		}
	}
}

func TestFlowIsBounded(t *testing.T) {
	var f Flow
	f.TCP(true, 1, 443, 0, true, nil)
	for i := range 1 << 16 { // a hello that never ends
		f.TCP(true, 1, 443, 1+uint32(i)*100, false, append([]byte{22, 3, 1, 0xff, 0xff, 1, 0, 0x3f, 0xff}, make([]byte, 91)...))
	}
	if n := cap(f.sides[1].stream.data); n > 2*prefixLimit {
		t.Errorf("%d bytes are kept", n)
	}
	for i := range 10000 {
		f.add(FromDNS, strings.Repeat("x", i))
	}
	if len(f.Names) > mostSeen || len(f.Names[len(f.Names)-1].Name) > longestText+3 {
		t.Errorf("%d names", len(f.Names))
	}
}
