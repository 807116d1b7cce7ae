package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"heddle/internal/socks5"
)

// Kind is what a request asks for.
type Kind byte

const (
	Connect   Kind = 1 // a TCP connection
	Datagrams Kind = 2 // a flow of UDP datagrams
)

// Request begins a stream.
type Request struct {
	Kind Kind
	Flow uint16 // of datagrams: the number that the client chose for it
	To   socks5.Target
}

// Code answers a request. All but [Granted] are errors, whose numbers are those of rst.
type Code byte

const (
	Granted     Code = 0
	Broken      Code = 1
	Unreachable Code = 2
	Forbidden   Code = 3
	TooMany     Code = 4
	Stopping    Code = 5
)

func (c Code) Error() string {
	switch c {
	case Broken:
		return "the bridge does not understand the request"
	case Unreachable:
		return "the bridge does not reach the target"
	case Forbidden:
		return "the bridge's rules forbid the target"
	case TooMany:
		return "too many streams or links are open"
	case Stopping:
		return "the bridge stops"
	}
	return fmt.Sprintf("the bridge refuses with code %d", byte(c))
}

// Is makes a code match the reply of a SOCKS5 proxy that says the same.
func (c Code) Is(target error) bool {
	switch c {
	case Unreachable:
		return target == socks5.HostUnreachable
	case Forbidden:
		return target == socks5.NotAllowed
	}
	return false
}

var errRequest = errors.New("the request cannot be understood")

// append appends the request in the format of the wire.
func (r Request) append(b []byte) []byte {
	b = append(b, byte(r.Kind))
	if r.Kind == Datagrams {
		b = binary.BigEndian.AppendUint16(b, r.Flow)
	}
	host := r.To.Host()
	b = append(append(b, byte(len(host))), host...)
	return binary.BigEndian.AppendUint16(b, r.To.Port)
}

// readRequest reads a request, and no byte more.
func readRequest(in io.Reader) (r Request, err error) {
	var b [255]byte
	read := func(n int) []byte {
		if err == nil {
			_, err = io.ReadFull(in, b[:n])
		}
		return b[:n]
	}
	if r.Kind = Kind(read(1)[0]); err == nil && r.Kind != Connect && r.Kind != Datagrams {
		return r, errRequest
	}
	if r.Kind == Datagrams {
		r.Flow = binary.BigEndian.Uint16(read(2))
	}
	host := string(read(int(read(1)[0])))
	port := binary.BigEndian.Uint16(read(2))
	if err != nil {
		return r, err
	}
	if r.To, err = socks5.NewTarget(host, port); err != nil || port == 0 {
		return r, errRequest
	}
	return r, nil
}

// Ask sends the request of a new stream. Data may follow at once; [Stream.Answered] waits for the answer.
func (s *Stream) Ask(r Request) error {
	_, err := s.Stream.Write(r.append(nil))
	return err
}

// Answered waits for the answer to this side's request. It fails with a [Code] if the other side refuses.
func (s *Stream) Answered() error {
	s.answer.Do(func() {
		if !s.asks {
			return
		}
		code, err := s.in.ReadByte()
		switch {
		case err != nil:
			s.failed = early(err)
		case Code(code) != Granted:
			s.failed = Code(code)
		}
	})
	return s.failed
}

// Request reads the other side's request. The caller sets a deadline.
func (s *Stream) Request() (Request, error) { return readRequest(s.in) }

// Answer answers the other side's request.
func (s *Stream) Answer(c Code) error {
	_, err := s.Stream.Write([]byte{byte(c)})
	return err
}
