package carrier

import (
	"cmp"
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

// extract reads the payload of an object that is there by parts.
func extract(more func() ([]byte, error)) ([]byte, error) {
	payload, err := io.ReadAll(&arriving{in: &failing{}, more: more})
	if err != nil {
		return nil, err
	}
	return payload, nil
}
