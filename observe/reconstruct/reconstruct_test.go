package reconstruct

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"image/color"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"heddle/identity"
	"heddle/internal/segment"
	"heddle/observe"
	"heddle/observe/decrypt"
)

// member is what a member of a session of two says: every other segment of the stream, of size bytes.
func member(stream []byte, size, number int, service string) []byte {
	hello := segment.Hello{Session: [16]byte{1}, Member: uint8(number), Members: 2, MinMembers: 2, Segment: segment.DataOverhead + uint32(size), Schedule: "strict", Service: service}
	b := hello.Append(nil)
	frame := uint64(0)
	for at, unit := 0, 0; at < len(stream); at, unit = at+size, unit+1 {
		if unit%2 != number {
			continue
		}
		payload := stream[at:min(at+size, len(stream))]
		head := make([]byte, segment.DataOverhead)
		segment.Data{Frame: frame, Unit: uint64(unit), Offset: uint64(at), Size: uint32(len(payload))}.Put(head, len(payload))
		b = append(append(b, head...), payload...)
		frame++
	}
	return segment.Fin{Offset: uint64(len(stream))}.Append(b)
}

// picture is a PPM whose pixels are all different from grey.
func picture(random *rand.Rand, width, height int) []byte {
	file := []byte("P6\n# made here\n")
	file = append(file, []byte(strings.Join([]string{strconv.Itoa(width), strconv.Itoa(height), "255"}, " ")+"\n")...)
	for range 3 * width * height {
		file = append(file, byte(random.Uint32()&0x7f))
	}
	return file
}

// said is what passes where up is said in TLS, inside a request for a connection, inside TLS.
func said(t *testing.T, up []byte) (client, server []byte, keys decrypt.Keys) {
	t.Helper()
	var log bytes.Buffer
	inside, back := wrap(t, &log, up, segment.Hello{Members: 2, MinMembers: 1}.Append(nil))
	client, server = wrap(t, &log, append([]byte("CONNECT 192.0.2.1:4000 HTTP/1.1\r\nHost: a\r\n\r\n"), inside...), append([]byte("HTTP/1.1 200 OK\r\n\r\n"), back...))
	keys, err := decrypt.ReadKeys(&log)
	if err != nil {
		t.Fatal(err)
	}
	return client, server, keys
}

type recorder struct {
	net.Conn
	written bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.written.Write(b)
	return r.Conn.Write(b)
}

// wrap says up and down in TLS, and gives what passed.
func wrap(t *testing.T, log io.Writer, up, down []byte) (client, server []byte) {
	t.Helper()
	id, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	outer, err := id.Client(id.Key(), "test/1")
	if err != nil {
		t.Fatal(err)
	}
	inner, err := id.Server(func(identity.Key) error { return nil }, "test/1")
	if err != nil {
		t.Fatal(err)
	}
	outer.KeyLogWriter = log
	a, b := net.Pipe()
	left, right := &recorder{Conn: a}, &recorder{Conn: b}
	var wait sync.WaitGroup
	wait.Go(func() {
		defer right.Close()
		c := tls.Server(right, inner)
		_, err := io.ReadFull(c, make([]byte, len(up)))
		if err == nil {
			_, err = c.Write(down)
		}
		if err != nil {
			t.Error(err)
		}
	})
	c := tls.Client(left, outer)
	if _, err := c.Write(up); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(c, make([]byte, len(down))); err != nil {
		t.Error(err)
	}
	wait.Wait()
	return left.written.Bytes(), right.written.Bytes()
}

func TestOneOfTwoPathsHasEveryOtherSegment(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	file := picture(rand.New(rand.NewPCG(seed, 0)), 40, 30)
	const size = 150
	client, server, keys := said(t, member(file, size, 1, "image"))
	sessions, notes := Sessions([]observe.Conversation{{Up: client, Down: server}, {Up: []byte("GET / HTTP/1.1\r\n\r\n")}}, keys)
	if len(sessions) != 1 || len(notes) != 0 {
		t.Fatalf("%d sessions, notes %q", len(sessions), notes)
	}
	s := sessions[0]
	if s.Service != "image" || s.Shares != "none" || s.Of != 2 || len(s.Members) != 1 || s.Members[0] != 1 || s.Up.Length != uint64(len(file)) {
		t.Errorf("%+v", s)
	}
	stream, known := s.Up.Fill(0, len(file))
	for i := range file {
		if want := i/size%2 == 1; known[i] != want || want && stream[i] != file[i] || !want && stream[i] != 0 {
			t.Fatalf("byte %d: known %v", i, known[i])
		}
	}
	p, err := Draw(s.Up, file, 0)
	if err != nil {
		t.Fatal(err)
	}
	if share := float64(p.Right) / float64(p.Pixels); p.Right != p.Drawn || math.Abs(share-0.5) > 0.06 {
		t.Errorf("%d of %d pixels drawn, %d right", p.Drawn, p.Pixels, p.Right)
	}
	if p.Image.NRGBAAt(0, 0) != (color.NRGBA{0x80, 0x80, 0x80, 0xff}) {
		t.Errorf("a pixel of the other path is drawn as %v", p.Image.NRGBAAt(0, 0))
	}

	other, _, more := said(t, member(file, size, 0, "image"))
	for random, secrets := range more {
		keys[random] = secrets
	}
	both, _ := Sessions([]observe.Conversation{{Up: client, Down: server}, {Up: other}}, keys)
	if len(both) != 1 {
		t.Fatalf("%d sessions of one", len(both))
	}
	if sessions, notes := Sessions([]observe.Conversation{{Up: client, Down: server}}, decrypt.Keys{}); len(sessions) != 0 || len(notes) != 1 {
		t.Errorf("without keys: %d sessions, notes %q", len(sessions), notes)
	}
}

func TestWhatCameTwiceCountsOnce(t *testing.T) {
	text := []byte("twelve bytes")
	up := member(text, 6, 0, "x")
	sessions, _ := Sessions([]observe.Conversation{{Up: up}, {Up: up}, {Up: member(text, 6, 1, "x")}}, nil)
	if len(sessions) != 1 || sessions[0].Up.Seen() != 12 || len(sessions[0].Members) != 2 {
		t.Fatalf("%+v", sessions)
	}
	if stream, _ := sessions[0].Up.Fill(7, 5); string(stream) != "bytes" {
		t.Errorf("%q", stream)
	}
}

func TestFormats(t *testing.T) {
	bmp := make([]byte, 54+12*2)
	copy(bmp, "BM")
	binary.LittleEndian.PutUint32(bmp[10:], 54)
	binary.LittleEndian.PutUint32(bmp[18:], 3)
	binary.LittleEndian.PutUint32(bmp[22:], 2)
	binary.LittleEndian.PutUint16(bmp[28:], 24)
	bmp[54+2] = 200 // red of the lower left pixel
	p, err := Draw(Direction{Pieces: []Piece{{0, uint32(len(bmp)), bmp}}}, bmp, 0)
	if err != nil || p.Right != 6 || p.PSNR < 100 || p.Image.NRGBAAt(0, 1).R != 200 {
		t.Errorf("BMP: %+v, %v", p, err)
	}
	for name, file := range map[string]string{
		"empty":        "",
		"PNG":          "\x89PNG\r\n",
		"cut short":    "P6\n4 4 255\n123",
		"no numbers":   "P6\nwide high 255\n",
		"deep":         "P6 4 4 65535\n" + strings.Repeat("x", 96),
		"flat":         "P6 0 4 255\n",
		"huge":         "P6 99999 99999 255\n",
		"head too":     "P6 4",
		"palette":      string(bmp[:28]) + "\x08" + string(bmp[29:]),
		"BMP's header": "BM123",
	} {
		if _, err := Draw(Direction{}, []byte(file), 0); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

func FuzzSessions(f *testing.F) {
	f.Add(member([]byte("some text"), 4, 0, "x"), segment.Hello{}.Append(nil))
	f.Fuzz(func(t *testing.T, up, down []byte) {
		sessions, _ := Sessions([]observe.Conversation{{Up: up, Down: down}}, nil)
		for _, s := range sessions {
			s.Up.Fill(0, 100)
		}
	})
}

func FuzzReadFormat(f *testing.F) {
	f.Add([]byte("P6\n# c\n4 4 255\n"))
	f.Add([]byte("BM" + strings.Repeat("\x01", 60)))
	f.Fuzz(func(t *testing.T, file []byte) {
		if f, err := ReadFormat(file); err == nil && (f.Width < 1 || f.Stride < f.Width*f.Pixel || f.Start < 0) {
			t.Errorf("%+v", f)
		}
	})
}
