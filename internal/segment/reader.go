package segment

import (
	"bufio"
	"errors"
	"io"
)

// Reader reads frames. It holds one control frame at most, and leaves the room for segments to who calls it.
type Reader struct {
	r       *bufio.Reader
	control [MaxControl]byte
}

// readAhead is small, so that most of a segment goes to its place without another copy.
const readAhead = 4 << 10

// NewReader reads from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, readAhead)} }

// Next reads the next frame. The body of a data frame goes to what room gives for its length; that of another frame is
// valid until the next call. It returns [io.EOF] between two frames only, and [io.ErrUnexpectedEOF] within one.
func (r *Reader) Next(room func(int) []byte) (Kind, []byte, error) {
	var head [HeaderSize]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return 0, nil, err
	}
	kind, length, err := ParseHeader(head)
	if err != nil {
		return 0, nil, err
	}
	body := r.control[:]
	if kind == KindData {
		body = room(length)
	}
	body = body[:length]
	if _, err := io.ReadFull(r.r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind, body, nil
}
