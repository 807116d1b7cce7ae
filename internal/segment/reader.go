package segment

import (
	"bufio"
	"errors"
	"io"
)

// Reader reads frames. It buffers at most one control frame; the caller provides the memory for segments.
type Reader struct {
	r       *bufio.Reader
	control [MaxControl]byte
}

// readAhead is small, so that most of a segment is read to its destination without a copy.
const readAhead = 4 << 10

func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, readAhead)} }

// Next reads the next frame. room returns memory for the body of a data frame; the body of another frame is valid until the
// next call. Between frames the end is [io.EOF], within one [io.ErrUnexpectedEOF].
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
