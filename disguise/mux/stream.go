package mux

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/hashicorp/yamux"
)

// Stream is one stream of a link. It is cut into chunks: a length (2), and so many bytes. A chunk without bytes ends the direction.
// yamux alone could not tell the end of a direction from a stream that somebody gave up.
type Stream struct {
	*yamux.Stream
	in   *bufio.Reader
	left int  // bytes of the chunk that is being read
	over bool // the other side ended its direction

	asks   bool      // this side made the request
	answer sync.Once // reads the answer
	failed error     // why the request was refused

	writing sync.Mutex
	ended   bool // this side ended its direction
}

var _ net.Conn = (*Stream)(nil)

// chunkSize is the most bytes that a chunk holds.
const chunkSize = 32<<10 - 2

// ErrCut says that the other side gave a stream up before its end.
var ErrCut = errors.New("the other side of the link ended the stream early")

var chunks = sync.Pool{New: func() any { return new([2 + chunkSize]byte) }}

func newStream(y *yamux.Stream, asks bool) *Stream {
	return &Stream{Stream: y, in: bufio.NewReaderSize(y, 4096), asks: asks}
}

// Read reads from the stream. If this side made the request, the first call waits for the answer, and fails with its [Code].
func (s *Stream) Read(b []byte) (int, error) {
	if err := s.Answered(); err != nil {
		return 0, err
	}
	for s.left == 0 && !s.over {
		var length [2]byte
		if _, err := io.ReadFull(s.in, length[:]); err != nil {
			return 0, early(err)
		}
		s.left = int(binary.BigEndian.Uint16(length[:]))
		s.over = s.left == 0
	}
	if s.over {
		return 0, io.EOF
	}
	n, err := s.in.Read(b[:min(s.left, len(b))])
	s.left -= n
	if n > 0 {
		err = nil // the next call finds it again
	}
	return n, early(err)
}

// early gives the error of a stream that ends before the end of its direction.
func early(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, yamux.ErrConnectionReset) {
		return ErrCut
	}
	return err
}

// Write sends b in chunks.
func (s *Stream) Write(b []byte) (written int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.ended {
		return 0, net.ErrClosed
	}
	chunk := chunks.Get().(*[2 + chunkSize]byte)
	defer chunks.Put(chunk)
	for len(b) > 0 {
		n := copy(chunk[2:], b)
		binary.BigEndian.PutUint16(chunk[:], uint16(n))
		if _, err := s.Stream.Write(chunk[:2+n]); err != nil {
			return written, err
		}
		written, b = written+n, b[n:]
	}
	return written, nil
}

// CloseWrite ends this side's direction.
func (s *Stream) CloseWrite() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.ended {
		return nil
	}
	s.ended = true
	_, err := s.Stream.Write([]byte{0, 0})
	return err
}

// Close gives the stream up. The other side notices it, unless both directions ended.
func (s *Stream) Close() error { return s.Stream.Close() }
