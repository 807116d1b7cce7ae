package carrier

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/zlib"
	"encoding/binary"
	"io"
)

// Reader reads the payload of an object while the object arrives. It fails with [ErrForeign] where Extract does, at the end of the object at the
// latest: what it gave until then may be from somebody else. Errors of the object's reader come through. A picture's
// payload comes with each 32 KiB of pixels, a window of inflate.
func Reader(c Carrier, original []byte, changed io.Reader) io.Reader {
	in := &failing{in: changed}
	a := &arriving{in: in}
	switch c := c.(type) {
	case finder:
		a.more = readSlots(original, c(original), in)
	case picture:
		a.more = readPicture(original, in)
	}
	if a.more == nil { // only the whole object shows what it hides
		a.more = func() ([]byte, error) {
			whole, err := io.ReadAll(in)
			if err != nil {
				return nil, err
			}
			payload, err := c.Extract(original, whole)
			return payload, cmp.Or(err, io.EOF)
		}
	}
	return a
}

// arriving reads payload by parts.
type arriving struct {
	in    *failing
	more  func() ([]byte, error) // the next part; with io.EOF it is the last one
	ready []byte
	err   error
}

// Read implements [io.Reader].
func (a *arriving) Read(b []byte) (int, error) {
	for len(a.ready) == 0 {
		if a.err != nil {
			return 0, a.err
		}
		var err error
		switch a.ready, err = a.more(); {
		case a.in.err != nil:
			a.ready, a.err = nil, a.in.err
		case err == io.EOF: //nolint:errorlint // as they return it
			a.err = io.EOF
		case err != nil:
			a.ready, a.err = nil, ErrForeign
		}
	}
	n := copy(b, a.ready)
	a.ready = a.ready[n:]
	return n, nil
}

// failing remembers that its reader failed.
type failing struct {
	in  io.Reader
	err error
}

// Read implements [io.Reader].
func (f *failing) Read(b []byte) (int, error) {
	n, err := f.in.Read(b)
	if err != nil && err != io.EOF { //nolint:errorlint // as readers return it
		f.err = err
	}
	return n, err
}

// all reads the payload of an object that is there.
func (a *arriving) all() ([]byte, error) {
	payload, err := io.ReadAll(a)
	if err != nil {
		return nil, err
	}
	return payload, nil
}

// readSlots reads slots one by one.
func readSlots(original []byte, slots []slot, changed io.Reader) func() ([]byte, error) {
	in, last := bufio.NewReader(changed), 0
	same := func(end int) error {
		gap := make([]byte, end-last)
		if _, err := io.ReadFull(in, gap); err != nil || !bytes.Equal(gap, original[last:end]) {
			return ErrForeign
		}
		last = end
		return nil
	}
	return func() ([]byte, error) {
		if len(slots) == 0 {
			return nil, cmp.Or(same(len(original)), ended(in))
		}
		s := slots[0]
		if err := same(s.at); err != nil {
			return nil, err
		}
		part, err := s.read(in)
		if err != nil {
			return nil, err
		}
		slots, last = slots[1:], s.at+s.size
		return s.in.Extract(s.of(original), part)
	}
}

// read reads what is in the place of the slot.
func (s slot) read(in *bufio.Reader) (part []byte, err error) {
	if !s.elastic {
		part = make([]byte, s.size)
		_, err = io.ReadFull(in, part)
		return part, err
	}
	for {
		b, err := in.ReadByte()
		if err != nil {
			return part, nil //nolint:nilerr // it fails again where the rest is read
		}
		if run([]byte{b}) == 0 {
			return part, in.UnreadByte()
		}
		part = append(part, b)
	}
}

// ended returns io.EOF if nothing more comes.
func ended(in io.Reader) error {
	if n, err := io.ReadFull(in, make([]byte, 1)); n > 0 || err != io.EOF { //nolint:errorlint // as it returns it
		return ErrForeign
	}
	return io.EOF
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
	in = io.TeeReader(in, file)
	now := &pixels{width: before.width, depth: before.depth, filters: before.filters, data: make([]byte, len(before.data))}
	var rows io.Reader
	y := 0
	return func() (payload []byte, err error) {
		if rows == nil {
			if rows, err = zlib.NewReader(&idat{in: in}); err != nil {
				return nil, err
			}
		}
		if y == len(now.filters) {
			// What Embed makes of the payload is the only accepted form: any other byte that changed was changed on the way.
			var want bytes.Buffer
			_ = before.write(&want, func(int) error { return nil }) // a buffer takes all
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

// idat reads what the IDAT chunks of a picture hold, up to the next chunk of another kind.
type idat struct {
	in    io.Reader
	left  int64 // of the chunk
	begun bool
}

// Read implements [io.Reader].
func (d *idat) Read(b []byte) (int, error) {
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
