package carrier

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"

	"github.com/klauspost/compress/zlib"
)

// picture hides bytes in PNG: in the colours of pixels that are fully transparent. No viewer shows them, and the picture that a browser
// shows stays the same to the bit. A picture has 8 bits for each of four channels, or of two, and is not interlaced. Drawing programs
// leave colours there too, but seldom noise. See the PNG specification (W3C, third edition), sections 5, 7 and 9.
type picture struct{}

// pixels is a PNG with its pixels unpacked.
type pixels struct {
	chunks  []chunk // all but IDAT
	idat    int     // where among them IDAT was
	most    int     // bytes of one IDAT chunk
	width   int     // bytes of a row, without its filter
	depth   int     // bytes of a pixel, the last of which is alpha
	filters []byte  // one for each row
	data    []byte  // rows without filters
}

type chunk struct {
	kind string
	data []byte
}

const (
	signature = "\x89PNG\r\n\x1a\n"
	maxPixels = 4 << 20 // bytes of the pixels: what a small file can claim
)

var errPNG = errors.New("the picture is damaged, or of another kind")

// Capacity implements [Carrier].
func (picture) Capacity(original []byte) int {
	p, err := readPNG(original)
	if err != nil {
		return 0
	}
	return len(p.hidden())
}

// hidden returns where the colours of transparent pixels are.
func (p *pixels) hidden() (at []int) {
	for i := 0; i < len(p.data); i += p.depth {
		if p.data[i+p.depth-1] == 0 {
			for j := range p.depth - 1 {
				at = append(at, i+j)
			}
		}
	}
	return at
}

// Embed implements [Carrier].
func (c picture) Embed(original, payload []byte) ([]byte, error) { return embed(c, original, payload) }

// pour implements [pourer].
func (picture) pour(w io.Writer, original []byte, payload io.Reader) error {
	p, err := readPNG(original)
	at := []int(nil)
	if err == nil {
		at = p.hidden()
	}
	if len(at) == 0 {
		_, err := w.Write(original)
		return err
	}
	return p.write(w, p.parts(at), func(end int) error {
		n, _ := slices.BinarySearch(at, end)
		hidden := make([]byte, n)
		if _, err := io.ReadFull(payload, hidden); err != nil {
			return err
		}
		for i, where := range at[:n] {
			p.data[where] = hidden[i]
		}
		at = at[n:]
		return nil
	})
}

// partSize is how many bytes of payload a picture has in each of its parts, about.
const partSize = 4 << 10

// parts divides a picture by rows, and returns where each part ends. A reader of the picture gets the payload of a part before the next part is
// written.
func (p *pixels) parts(at []int) (ends []int) {
	for next := partSize; next < len(at); {
		y := at[next-1]/p.width + 1
		ends = append(ends, y)
		n, _ := slices.BinarySearch(at, y*p.width)
		next = n + partSize
	}
	return append(ends, len(p.filters))
}

// Extract implements [Carrier].
func (picture) Extract(original, changed []byte) ([]byte, error) {
	more := readPicture(original, bytes.NewReader(changed))
	if more == nil {
		if !bytes.Equal(original, changed) {
			return nil, ErrForeign
		}
		return nil, nil
	}
	return extract(more)
}

// readPNG reads a picture. The bytes may be hostile.
func readPNG(file []byte) (*pixels, error) {
	rest, found := bytes.CutPrefix(file, []byte(signature))
	if !found {
		return nil, errPNG
	}
	p := &pixels{idat: -1}
	var packed []byte
	for len(rest) > 0 {
		if len(rest) < 12 {
			return nil, errPNG
		}
		size := binary.BigEndian.Uint32(rest)
		if uint64(size) > uint64(len(rest)-12) {
			return nil, errPNG
		}
		end := 8 + int(size)
		c := chunk{string(rest[4:8]), rest[8:end]}
		if crc32.ChecksumIEEE(rest[4:end]) != binary.BigEndian.Uint32(rest[end:]) {
			return nil, errPNG
		}
		rest = rest[end+4:]
		if c.kind != "IDAT" {
			p.chunks = append(p.chunks, c)
			continue
		}
		if p.idat < 0 {
			p.idat = len(p.chunks)
		} else if p.idat != len(p.chunks) {
			return nil, errPNG
		}
		p.most = max(p.most, len(c.data))
		packed = append(packed, c.data...)
	}
	if err := p.head(); err != nil {
		return nil, err
	}
	return p, p.unpack(packed)
}

// head reads the sizes from the first chunk.
func (p *pixels) head() error {
	if p.idat < 1 || p.chunks[0].kind != "IHDR" || len(p.chunks[0].data) != 13 || p.chunks[len(p.chunks)-1].kind != "IEND" {
		return errPNG
	}
	for _, c := range p.chunks {
		if c.kind == "acTL" { // an animation has further pixels
			return errPNG
		}
	}
	h := p.chunks[0].data
	width, height := uint64(binary.BigEndian.Uint32(h)), uint64(binary.BigEndian.Uint32(h[4:]))
	p.depth = map[byte]int{4: 2, 6: 4}[h[9]]
	if h[8] != 8 || p.depth == 0 || h[10] != 0 || h[11] != 0 || h[12] != 0 || width == 0 || height == 0 || width > maxPixels || height > maxPixels {
		return errPNG
	}
	p.width = int(width) * p.depth
	if uint64(p.width)*height > maxPixels {
		return errPNG
	}
	p.filters = make([]byte, height)
	return nil
}

// unpack inflates the rows and undoes their filters.
func (p *pixels) unpack(packed []byte) error {
	r, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return errPNG
	}
	rows := len(p.filters)
	filtered := make([]byte, rows*(p.width+1))
	if _, err := io.ReadFull(r, filtered); err != nil {
		return errPNG
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF { // which also checks the sum
		return errPNG
	}
	p.data = make([]byte, rows*p.width)
	for y := range rows {
		in := filtered[y*(p.width+1):][:p.width+1]
		if p.filters[y] = in[0]; in[0] > 4 {
			return errPNG
		}
		for x := range p.width {
			p.data[y*p.width+x] = in[x+1] + p.predict(y, x)
		}
	}
	return nil
}

// predict is what the filter of a row subtracts from a byte.
func (p *pixels) predict(y, x int) byte {
	var left, up, corner byte
	at := y*p.width + x
	if x >= p.depth {
		left = p.data[at-p.depth]
	}
	if y > 0 {
		up = p.data[at-p.width]
	}
	if y > 0 && x >= p.depth {
		corner = p.data[at-p.width-p.depth]
	}
	switch p.filters[y] {
	case 1:
		return left
	case 2:
		return up
	case 3:
		return byte((int(left) + int(up)) / 2)
	case 4:
		return paeth(left, up, corner)
	}
	return 0
}

// paeth is the predictor of section 9.4.
func paeth(a, b, c byte) byte {
	p := int(a) + int(b) - int(c)
	da, db, dc := distance(p, a), distance(p, b), distance(p, c)
	switch {
	case da <= db && da <= dc:
		return a
	case db <= dc:
		return b
	}
	return c
}

func distance(p int, v byte) int { return max(p-int(v), int(v)-p) }

// write writes the picture as a file, with the filters that it had, and in chunks that are no larger. Before each part, which ends with a row, it calls fill
// with the part's end in the data.
func (p *pixels) write(w io.Writer, parts []int, fill func(end int) error) error {
	if _, err := io.WriteString(w, signature); err != nil {
		return err
	}
	for i, c := range p.chunks {
		if i == p.idat {
			if err := p.writeRows(&idatWriter{w: w, most: max(p.most, 1)}, parts, fill); err != nil {
				return err
			}
		}
		if err := writeChunk(w, c.kind, c.data); err != nil {
			return err
		}
	}
	return nil
}

func (p *pixels) writeRows(chunks *idatWriter, parts []int, fill func(end int) error) error {
	packed := newPacker(chunks)
	row := make([]byte, p.width+1)
	y := 0
	for _, end := range parts {
		if err := fill(end * p.width); err != nil {
			return err
		}
		for ; y < end; y++ {
			row[0] = p.filters[y]
			for x := range p.width {
				row[x+1] = p.data[y*p.width+x] - p.predict(y, x)
			}
			if _, err := packed.Write(row); err != nil {
				return err
			}
		}
		if err := cmp.Or(packed.Flush(), chunks.end()); err != nil {
			return err
		}
		if w, ok := chunks.w.(interface{ Flush() error }); ok {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return cmp.Or(packed.Close(), chunks.end())
}

// packLevel is the lowest level at which the compressor looks for the best next match. Below it pictures take an eighth more, and their sizes jump.
const packLevel = 7

func newPacker(w io.Writer) *zlib.Writer {
	packed, _ := zlib.NewWriterLevel(w, packLevel) // it fails for other levels alone
	return packed
}

// idatWriter cuts what is written into chunks.
type idatWriter struct {
	w    io.Writer
	most int // bytes of a chunk
	part []byte
}

// Write implements [io.Writer].
func (c *idatWriter) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), c.most-len(c.part))
		c.part, rest = append(c.part, rest[:n]...), rest[n:]
		if len(c.part) == c.most {
			if err := c.end(); err != nil {
				return 0, err
			}
		}
	}
	return len(b), nil
}

// end ends the chunk.
func (c *idatWriter) end() error {
	if len(c.part) == 0 {
		return nil
	}
	err := writeChunk(c.w, "IDAT", c.part)
	c.part = c.part[:0]
	return err
}

func writeChunk(w io.Writer, kind string, data []byte) error {
	out := binary.BigEndian.AppendUint32(make([]byte, 0, 12+len(data)), uint32(len(data)))
	out = append(append(out, kind...), data...)
	_, err := w.Write(binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:])))
	return err
}

// readPicture reads a picture row by row. It returns nil for one that hides nothing.
func readPicture(original []byte, in io.Reader) func() ([]byte, error) {
	before, err := readPNG(original)
	if err != nil {
		return nil
	}
	at, file := before.hidden(), &bytes.Buffer{}
	if len(at) == 0 {
		return nil
	}
	parts := before.parts(at)
	in = io.TeeReader(in, file)
	now := &pixels{width: before.width, depth: before.depth, filters: before.filters, data: make([]byte, len(before.data))}
	var rows io.Reader
	y := 0
	return func() (payload []byte, err error) {
		if rows == nil {
			if rows, err = zlib.NewReader(&idatReader{in: in}); err != nil {
				return nil, err
			}
		}
		if y == len(now.filters) {
			// What Embed makes of the payload is the only accepted form: any other byte that changed was changed on the way.
			var want bytes.Buffer
			_ = before.write(&want, parts, func(int) error { return nil }) // a buffer takes all
			if _, err := io.Copy(io.Discard, in); err != nil || !bytes.Equal(want.Bytes(), file.Bytes()) {
				return nil, ErrForeign
			}
			return nil, io.EOF
		}
		row := make([]byte, now.width+1)
		if _, err := io.ReadFull(rows, row); err != nil || row[0] != now.filters[y] {
			return nil, ErrForeign
		}
		for x := range now.width {
			now.data[y*now.width+x] = row[x+1] + now.predict(y, x)
		}
		for y++; len(at) > 0 && at[0] < y*now.width; at = at[1:] {
			before.data[at[0]] = now.data[at[0]]
			payload = append(payload, now.data[at[0]])
		}
		return payload, nil
	}
}

// idatReader reads what the IDAT chunks of a picture hold, up to the next chunk of another kind.
type idatReader struct {
	in    io.Reader
	left  int64 // of the chunk
	begun bool
}

// Read implements [io.Reader].
func (d *idatReader) Read(b []byte) (int, error) {
	for d.left == 0 {
		before := int64(len(signature))
		if d.begun {
			before = 4 // the sum
		}
		if _, err := io.CopyN(io.Discard, d.in, before); err != nil {
			return 0, err
		}
		for {
			var head [8]byte
			if _, err := io.ReadFull(d.in, head[:]); err != nil {
				return 0, err
			}
			size := int64(binary.BigEndian.Uint32(head[:]))
			if string(head[4:]) == "IDAT" {
				d.left, d.begun = size, true
				break
			}
			if d.begun {
				return 0, io.EOF
			}
			if _, err := io.CopyN(io.Discard, d.in, size+4); err != nil {
				return 0, err
			}
		}
	}
	n, err := d.in.Read(b[:min(int64(len(b)), d.left)])
	d.left -= int64(n)
	return n, err
}
