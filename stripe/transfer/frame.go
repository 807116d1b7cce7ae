package transfer

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// kind is the first byte of a frame. Four bytes follow: the length of the rest, big-endian.
type kind byte

const (
	kindOffer   kind = 'O'
	kindAnswer  kind = 'A'
	kindProof   kind = 'P'
	kindBegin   kind = 'B'
	kindData    kind = 'D'
	kindEnding  kind = 'E'
	kindResults kind = 'R'
	kindStopped kind = 'S'
)

const (
	headerBytes = 5
	maxMessage  = 1 << 20   // bytes of JSON
	maxData     = 256 << 10 // bytes of content in one frame
	maxBatch    = 256       // files in one offer, all of whose parts may be open at once
)

func (k kind) limit() uint32 {
	switch k {
	case kindData:
		return maxData
	case kindOffer, kindAnswer, kindProof, kindBegin, kindEnding, kindResults, kindStopped:
		return maxMessage
	}
	return 0
}

// frame is one message. Its payload is valid until the next read.
type frame struct {
	kind    kind
	payload []byte
}

// reader reads frames. It allocates for the bytes received, not for the length in the header.
type reader struct {
	from io.Reader
	data bytes.Buffer
}

// read returns io.EOF only if no byte of a frame arrived.
func (r *reader) read() (frame, error) {
	var head [headerBytes]byte
	if _, err := io.ReadFull(r.from, head[:]); err != nil {
		return frame{}, err
	}
	k, length := kind(head[0]), binary.BigEndian.Uint32(head[1:])
	if limit := k.limit(); length > limit || limit == 0 {
		return frame{}, fmt.Errorf("%w: a frame %q of %d bytes", ErrNotSpoken, byte(k), length)
	}
	r.data.Reset()
	if _, err := io.CopyN(&r.data, r.from, int64(length)); err != nil {
		return frame{}, noEOF(err)
	}
	return frame{k, r.data.Bytes()}, nil
}

// expect reads one message of a kind. It returns an error if the other side stopped the transfer.
func (r *reader) expect(k kind, into any) error {
	f, err := r.read()
	if err != nil {
		return err
	}
	return f.decode(k, into)
}

func (f frame) decode(k kind, into any) error {
	if f.kind == kindStopped && k != kindStopped {
		var s stopped
		if err := f.decode(kindStopped, &s); err != nil {
			return err
		}
		return &StoppedError{printable(s.Why)}
	}
	if f.kind != k {
		return fmt.Errorf("%w: a frame %q where %q belongs", ErrNotSpoken, byte(f.kind), byte(k))
	}
	if err := json.Unmarshal(f.payload, into); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSpoken, err)
	}
	return nil
}

// write sends a message in one write.
func write(to io.Writer, k kind, message any) error {
	var b bytes.Buffer
	b.Write(make([]byte, headerBytes))
	text := json.NewEncoder(&b)
	text.SetEscapeHTML(false) // it would make names longer
	if err := text.Encode(message); err != nil {
		return err
	}
	if b.Len() > int(k.limit()) {
		return fmt.Errorf("a message of %d bytes is too long", b.Len())
	}
	return writeFrame(to, k, b.Bytes())
}

// writeFrame sends b in one write. Its first five bytes are room for the header.
func writeFrame(to io.Writer, k kind, b []byte) error {
	b[0] = byte(k)
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-headerBytes))
	_, err := to.Write(b)
	return err
}
