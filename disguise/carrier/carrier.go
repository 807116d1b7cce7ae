// Package carrier hides bytes in the objects of a website, one file for each type. An object still parses, runs and renders as before.
//
// Both ends know the original object, which is not secret. So a carrier needs no marks or lengths of its own, and refuses an object that
// differs from the original anywhere but in the hidden bytes. These must look like random ones, as those of package block do.
package carrier

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
)

// Carrier hides bytes in objects of one type. It keeps nothing of its arguments and may be used by several goroutines.
type Carrier interface {
	// Capacity is how many bytes an object hides: always this many. It is 0 for an object that is damaged.
	Capacity(original []byte) int
	// Embed returns the object with a payload of just Capacity bytes.
	Embed(original, payload []byte) ([]byte, error)
	// Extract returns the payload. It fails with [ErrForeign] if Embed did not make changed from original. A stranger may have.
	Extract(original, changed []byte) ([]byte, error)
}

// ErrForeign says that an object is not the original with something hidden in it.
var ErrForeign = errors.New("the object differs from the recorded one")

// For returns the carrier for a media type, or nil.
func For(mediaType string) Carrier {
	switch mediaType {
	case "text/html", "application/xhtml+xml":
		return finder(inHTML)
	case "application/json", "application/manifest+json", "application/ld+json":
		return finder(inJSON)
	case "text/css":
		return finder(inText)
	case "text/javascript", "application/javascript", "application/x-javascript":
		return finder(inScript)
	case "application/x-www-form-urlencoded":
		return Target
	case "image/png":
		return picture{}
	case "image/jpeg":
		return photo{}
	case "font/woff2", "application/font-woff2":
		return finder(inFont)
	case "application/pdf":
		return finder(inPDF)
	case "application/x-shockwave-flash":
		return movie{}
	case "video/mp4", "audio/mp4", "video/iso.segment", "audio/iso.segment":
		return finder(inMedia)
	}
	return nil
}

// Growth is about how many bytes an object of a media type grows by a payload. A picture hides in pixels that are all alike before, and take almost no bytes.
func Growth(mediaType string, payload int) int {
	if mediaType == "image/png" {
		return payload + payload*3/20
	}
	return 0
}

// Target hides bytes in path segments and query values of request targets (RFC 9112, section 3.2), and in the values of forms: in those
// that are random tokens in hexadecimal or base64url.
var Target Carrier = finder(inTarget)

// Whole puts the payload in place of the whole object. Use it only where no observer can read the object.
var Whole Carrier = all{raw{}}

// slot is a part of an object in which another carrier hides bytes. Slots are in order and do not overlap.
type slot struct {
	at, size int // bytes
	in       Carrier
	elastic  bool // its size may change: it ends before the first byte that is not of base64
}

// finder finds the slots of an object.
type finder func(original []byte) []slot

// Capacity implements [Carrier].
func (find finder) Capacity(original []byte) (bytes int) {
	for _, s := range find(original) {
		bytes += s.in.Capacity(s.of(original))
	}
	return bytes
}

func (s slot) of(original []byte) []byte { return original[s.at : s.at+s.size] }

// Embed implements [Carrier].
func (find finder) Embed(original, payload []byte) ([]byte, error) {
	return embed(find, original, payload)
}

// pour implements [pourer].
func (find finder) pour(w io.Writer, original []byte, payload io.Reader) error {
	last := 0
	for _, s := range find(original) {
		part := s.of(original)
		hidden := make([]byte, s.in.Capacity(part))
		if _, err := io.ReadFull(payload, hidden); err != nil {
			return err
		}
		changed, err := s.in.Embed(part, hidden)
		if err != nil {
			return err
		}
		for _, b := range [][]byte{original[last:s.at], changed} {
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		last = s.at + s.size
	}
	_, err := w.Write(original[last:])
	return err
}

func wrongSize(n int) error { return fmt.Errorf("%d bytes are not what the object hides", n) }

// Extract implements [Carrier].
func (find finder) Extract(original, changed []byte) (payload []byte, err error) {
	return extract(readSlots(original, find(original), bytes.NewReader(changed)))
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
