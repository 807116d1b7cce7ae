package carrier

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
	"testing"

	"github.com/andybalholm/brotli"
)

// film is an SWF of 550x400 with some tags.
func film(tags ...[]byte) []byte {
	body := []byte{0x78, 0, 5, 0x5f, 0, 0, 0x0f, 0xa0, 0, 0, 12, 1, 0} // frame, rate and number
	body = append(body, bytes.Join(tags, nil)...)
	body = append(body, 1<<6, 0, 0, 0) // ShowFrame, End
	return append(binary.LittleEndian.AppendUint32([]byte("FWS\x09"), uint32(8+len(body))), body...)
}

func tag(kind int, content []byte) []byte {
	if len(content) < 0x3f {
		return append(binary.LittleEndian.AppendUint16(nil, uint16(kind<<6|len(content))), content...)
	}
	head := binary.LittleEndian.AppendUint16(nil, uint16(kind<<6|0x3f))
	return append(binary.LittleEndian.AppendUint32(head, uint32(len(content))), content...)
}

func packedFilm(plain []byte) []byte {
	return append(append([]byte("C"), plain[1:8]...), deflated(plain[8:])...)
}

// tagsOf parses a film by the specification, and blanks what hides something.
func tagsOf(t *testing.T, file []byte) (text []byte) {
	t.Helper()
	size, rest := int(binary.LittleEndian.Uint32(file[4:])), file[8:]
	if file[0] == 'C' {
		r, err := zlib.NewReader(bytes.NewReader(rest))
		if err != nil {
			t.Fatal(err)
		}
		if rest, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	if len(rest) != size-8 {
		t.Fatalf("it has %d bytes, and says %d", len(rest)+8, size)
	}
	for text, rest = append(text, rest[:13]...), rest[13:]; len(rest) > 0; {
		code, size := int(rest[1])<<2|int(rest[0])>>6, int(rest[0]&0x3f)
		if rest = rest[2:]; size == 0x3f {
			size, rest = int(binary.LittleEndian.Uint32(rest)), rest[4:]
		}
		content := rest[:size]
		if rest = rest[size:]; code == 63 || code >= 95 {
			content = make([]byte, size)
		} else if code == 87 {
			content = append(bytes.Clone(content[:6]), make([]byte, size-6)...)
		}
		text = append(text, tag(code, content)...)
	}
	return text
}

func films() []example {
	const kind = "application/x-shockwave-flash"
	plain := film(tag(9, []byte{1, 2, 3}), tag(63, random(16)), tag(87, append([]byte{1, 0, 0, 0, 0, 0}, random(200)...)), tag(700, random(80)), tag(20, random(99)))
	wrong := bytes.Clone(plain)
	wrong[4]++
	return []example{
		{kind, "plain", plain, 16 + 200 + 80},
		{kind, "compressed", packedFilm(plain), 16 + 200 + 80},
		{kind, "data that are text", film(tag(87, append(make([]byte, 6), bytes.Repeat([]byte("text "), 20)...))), 0},
		{kind, "another size", wrong, 0},
		{kind, "compressed, with another size", packedFilm(wrong), 0},
		{kind, "LZMA", append([]byte("Z"), plain[1:]...), 0},
		{kind, "cut", plain[:20], 0},
	}
}

// font is a WOFF2 with one small table, and private data.
func font(private []byte) []byte {
	table := bytes.Repeat([]byte{0, 1, 2, 3}, 8)
	var packed bytes.Buffer
	w := brotli.NewWriter(&packed)
	w.Write(table) //nolint:errcheck // a buffer takes all
	w.Close()
	directory := append([]byte{63}, "Hddl"...)
	directory = append(directory, byte(len(table)))
	pad := func(b []byte) []byte { return append(b, make([]byte, -len(b)&3)...) }
	body := pad(append(append(make([]byte, 48), directory...), packed.Bytes()...))
	at := len(body)
	body = append(body, private...)
	copy(body, "wOF2\x00\x01\x00\x00")
	binary.BigEndian.PutUint32(body[8:], uint32(len(body)))
	binary.BigEndian.PutUint16(body[12:], 1)
	binary.BigEndian.PutUint32(body[16:], uint32(12+16+len(table)))
	binary.BigEndian.PutUint32(body[20:], uint32(packed.Len()))
	binary.BigEndian.PutUint32(body[40:], uint32(at))
	binary.BigEndian.PutUint32(body[44:], uint32(len(private)))
	return body
}

func fonts() []example {
	const kind = "font/woff2"
	long, short := append(font(random(90)), 0), font(random(90))
	binary.BigEndian.PutUint32(short[44:], 80)
	return []example{
		{kind, "private data", font(random(90)), 90},
		{kind, "private text", font(bytes.Repeat([]byte("foundry "), 9)), 0},
		{kind, "without private data", font(nil), 0},
		{kind, "a longer file", long, 0},
		{kind, "something after the private data", short, 0},
	}
}
