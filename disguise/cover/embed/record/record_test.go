package record

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"heddle/disguise/cover/embed"
	"heddle/observe"
)

var (
	client = netip.MustParseAddrPort("192.0.2.1:40000")
	server = netip.MustParseAddrPort("198.51.100.7:5004")
	began  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// captureOf reads what a tap wrote.
func captureOf(t *testing.T, write func(tap *observe.FileTap)) *observe.Capture {
	t.Helper()
	dir := t.TempDir()
	tap, err := observe.NewFileTap(dir, "a", "")
	if err != nil {
		t.Fatal(err)
	}
	write(tap)
	if err := tap.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "a.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := observe.Read(f, observe.Options{Head: Head})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rtpPacket is a packet of G.711 with an extension bit that the template must not keep.
func rtpPacket(sequence uint16, timestamp uint32, marker byte) []byte {
	b := make([]byte, 172)
	b[0], b[1] = 0x90, marker|8
	binary.BigEndian.PutUint16(b[2:], sequence)
	binary.BigEndian.PutUint32(b[4:], timestamp)
	copy(b[8:], "ssrc")
	_, _ = rand.NewChaCha8([32]byte{byte(sequence)}).Read(b[12:])
	return b
}

func TestRecordsRTP(t *testing.T) {
	c := captureOf(t, func(tap *observe.FileTap) {
		for i := range 50 {
			marker := byte(0)
			if i == 20 {
				marker = 0x80
			}
			at := began.Add(time.Duration(i) * 20 * time.Millisecond)
			tap.Datagram(at, true, client, server, rtpPacket(uint16(65530+i), uint32(i)*160, marker))
			tap.Datagram(at.Add(5*time.Millisecond), false, client, server, rtpPacket(uint16(i+i/30), uint32(i)*160, 0))
		}
	})
	traces, skipped := Traces(c, "call", Options{Least: 20, Most: time.Minute})
	if len(traces) != 1 || len(skipped) != 0 {
		t.Fatalf("%d traces, skipped %v", len(traces), skipped)
	}
	got := traces[0]
	if got.Name != "call" || got.Protocol != "RTP, payload type 8" || !got.Datagrams || got.Port != 5004 || got.Whole || len(got.Packets) != 100 {
		t.Errorf("%s, %s, port %d, %d packets", got.Name, got.Protocol, got.Port, len(got.Packets))
	}
	if p := got.Packets[99]; p != (embed.Packet{At: 985 * time.Millisecond, Size: 172, Down: true}) {
		t.Errorf("the last packet is %+v", p)
	}
	up := got.Up
	if up[1].Kind != embed.Steps || up[1].Steps[20] != 0x80 || up[1].Steps[21] != 0x80 {
		t.Errorf("marker: %+v", up[1])
	}
	up[1] = embed.Field{}
	if want := (embed.Header{{Kind: embed.Literal, Bytes: 1, Value: []byte{0x80}}, {}, {Kind: embed.Counter, Bytes: 2, Step: 1},
		{Kind: embed.Counter, Bytes: 4, Step: 160}, {Kind: embed.Session, Bytes: 4}}); !reflect.DeepEqual(up, want) {
		t.Errorf("%+v", up)
	}
	if down := got.Down; down[1].Kind != embed.Literal || down[1].Value[0] != 8 || down[2].Kind != embed.Steps || down[2].Steps[30] != 2 {
		t.Errorf("%+v", down)
	}
}

func TestFindsNumbersAndConstants(t *testing.T) {
	noise := rand.New(rand.NewChaCha8([32]byte{3}))
	for name, c := range map[string]struct {
		head func(i int) []byte
		want embed.Header
	}{
		"mosh": {func(i int) []byte { return binary.BigEndian.AppendUint64(nil, 1<<63|uint64(i)) },
			embed.Header{{Kind: embed.Literal, Bytes: 7, Value: []byte{0x80, 0, 0, 0, 0, 0, 0}}, {Kind: embed.Counter, Bytes: 1, Value: []byte{0}, Step: 1}}},
		"a carry": {func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i+250)) },
			embed.Header{{Kind: embed.Literal, Bytes: 2, Value: []byte{0, 0}}, {Kind: embed.Counter, Bytes: 2, Value: []byte{0, 250}, Step: 1}}},
		"wireguard": {func(i int) []byte {
			return binary.LittleEndian.AppendUint64([]byte{4, 0, 0, 0, 7, 8, 9, 10}, uint64(i+300))
		}, embed.Header{{Kind: embed.Literal, Bytes: 8, Value: []byte{4, 0, 0, 0, 7, 8, 9, 10}},
			{Kind: embed.Counter, Bytes: 1, Value: []byte{0x2c}, Step: 1}, {Kind: embed.Literal, Bytes: 7, Value: []byte{1, 0, 0, 0, 0, 0, 0}}}},
		"little-endian, with a carry and a loss": {func(i int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(i+i/15+250)) },
			embed.Header{{Kind: embed.Steps, Bytes: 2, Little: true, Value: []byte{250, 0}, Steps: []uint64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1}},
				{Kind: embed.Literal, Bytes: 2, Value: []byte{0, 0}}}},
		"a narrow number": {func(i int) []byte { return binary.BigEndian.AppendUint16([]byte("GAME"), uint16(2*i)) },
			embed.Header{{Kind: embed.Literal, Bytes: 5, Value: []byte("GAME\x00")}, {Kind: embed.Counter, Bytes: 1, Value: []byte{0}, Step: 2}}},
		"a timestamp": {func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(960*i)) },
			embed.Header{{Kind: embed.Literal, Bytes: 2, Value: []byte{0, 0}}, {Kind: embed.Counter, Bytes: 2, Value: []byte{0, 0}, Step: 960}}},
		"a rare flag": {func(i int) []byte { return []byte{byte(i / 7 % 2)} },
			embed.Header{{Kind: embed.Steps, Bytes: 1, Value: []byte{0}, Steps: []uint64{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 0, 0}}}},
		"ciphertext": {func(int) []byte { return nil }, nil},
	} {
		var heads [][]byte
		for i := range 20 {
			body := make([]byte, 40)
			for j := range body {
				body[j] = byte(noise.Uint32())
			}
			heads = append(heads, append(c.head(i), body...))
		}
		if got := detect(heads); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if h := detect([][]byte{{1, 2}, {1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}}); len(h) != 1 || h.Size() != 1 {
		t.Errorf("a short packet: %+v", h)
	}
}

func TestNumbersFollowTheRecording(t *testing.T) {
	values := []uint64{0xfffe, 0xffff, 0, 5, 4}
	f := number(values, 2, true)
	if !reflect.DeepEqual(f, embed.Field{Kind: embed.Steps, Bytes: 2, Value: []byte{0xff, 0xfe}, Steps: []uint64{1, 1, 1, 5, 0xffff}}) {
		t.Errorf("%+v", f)
	}
}

func TestSkipsWhatCannotPlay(t *testing.T) {
	other := netip.MustParseAddrPort("198.51.100.8:53")
	c := captureOf(t, func(tap *observe.FileTap) {
		for i := range 30 {
			at := began.Add(time.Duration(i) * time.Second)
			tap.Datagram(at, true, client, server, bytes.Repeat([]byte{byte(i * 91)}, 300))
			tap.Datagram(at, false, client, server, bytes.Repeat([]byte{byte(i * 57)}, 300))
			tap.Datagram(at, true, client, other, bytes.Repeat([]byte{byte(i * 91)}, 50))
			if i > 0 {
				tap.Datagram(at, false, client, other, bytes.Repeat([]byte{byte(i * 57)}, 300))
			}
		}
	})
	traces, skipped := Traces(c, "a", Options{Least: 10, Most: 14 * time.Second})
	if len(traces) != 1 || len(traces[0].Packets) != 30 || len(skipped) != 1 {
		t.Errorf("%d traces, skipped %v", len(traces), skipped)
	}
	if traces, skipped = Traces(c, "a", Options{Least: 30, Most: time.Minute}); len(traces) != 1 || len(skipped) != 1 {
		t.Errorf("%d traces, skipped %v", len(traces), skipped)
	}
}

func TestOpening(t *testing.T) {
	for text, want := range map[string]int{"SSH-2.0-x\r\n\x00\x01": 11, "HELLO": 0, "\x16\x03\x01\n": 0, "": 0, "\n": 0, "OK a\n": 0, "+OK a\n": 6} {
		if h := opening([]byte(text)); h.Size() != want {
			t.Errorf("%q: %+v", text, h)
		}
	}
}

func TestOpeningOfRTMP(t *testing.T) {
	head := append([]byte{3, 0, 0, 0, 1, 9, 0, 124, 2}, make([]byte, Head)...)
	if h := rtmp(head); h.Size() != 9 || !bytes.Equal(h[0].Value, head[:9]) {
		t.Errorf("%+v", h)
	}
	head[0] = 4
	if h := rtmp(head); h != nil {
		t.Errorf("%+v", h)
	}
	if h := rtmp([]byte{3}); h.Size() != 1 {
		t.Errorf("%+v", h)
	}
	if h := rtmp(nil); h != nil {
		t.Errorf("%+v", h)
	}
}
