package carrier

import (
	"bytes"
	"encoding/binary"
	"hash/adler32"
)

// stored replaces all that is in a zlib stream (RFC 1950) of stored blocks (RFC 1951, section 3.2.4), which compressors write for what does
// not compress. The blocks stay as they are, so the stream keeps its size. It hides nothing in other streams.
type stored struct{}

// span is a part of some bytes.
type span struct{ at, end int }

// blocks returns where the content of the stored blocks is, and where the stream's sum is. It fails for other streams.
func blocks(stream []byte) (content []span, sum int, found bool) {
	if len(stream) < 2 || stream[0]&15 != 8 || binary.BigEndian.Uint16(stream)%31 != 0 || stream[1]&0x20 != 0 {
		return nil, 0, false
	}
	for at, last := 2, false; ; {
		if last {
			return content, at, len(stream)-at >= adler32.Size
		}
		if len(stream)-at < 5 || stream[at]&6 != 0 {
			return nil, 0, false
		}
		size := int(binary.LittleEndian.Uint16(stream[at+1:]))
		if binary.LittleEndian.Uint16(stream[at+3:]) != ^uint16(size) || len(stream)-at-5 < size {
			return nil, 0, false
		}
		last = stream[at]&1 != 0
		at += 5 + size
		if size > 0 {
			content = append(content, span{at - size, at})
		}
	}
}

// content returns what is in the stream, or nil.
func (stored) content(stream []byte) (out []byte) {
	spans, _, _ := blocks(stream)
	for _, s := range spans {
		out = append(out, stream[s.at:s.end]...)
	}
	return out
}

// Capacity implements [Carrier].
func (s stored) Capacity(original []byte) (n int) {
	spans, _, found := blocks(original)
	if !found {
		return 0
	}
	for _, s := range spans {
		n += s.end - s.at
	}
	return n
}

// Embed implements [Carrier].
func (s stored) Embed(original, payload []byte) ([]byte, error) {
	if len(payload) != s.Capacity(original) {
		return nil, wrongSize(len(payload))
	}
	if len(payload) == 0 {
		return original, nil
	}
	out := bytes.Clone(original)
	spans, sum, _ := blocks(original)
	binary.BigEndian.PutUint32(out[sum:], adler32.Checksum(payload))
	for _, s := range spans {
		payload = payload[copy(out[s.at:s.end], payload):]
	}
	return out, nil
}

// Extract implements [Carrier].
func (s stored) Extract(original, changed []byte) ([]byte, error) {
	if len(changed) != len(original) {
		return nil, ErrForeign
	}
	var payload []byte
	if spans, _, found := blocks(original); found {
		for _, s := range spans {
			payload = append(payload, changed[s.at:s.end]...)
		}
	}
	return only(s, original, changed, payload)
}

// only returns the payload if Embed makes changed of it: any other byte that changed was changed on the way.
func only(c Carrier, original, changed, payload []byte) ([]byte, error) {
	if again, err := c.Embed(original, payload); err != nil || !bytes.Equal(again, changed) {
		return nil, ErrForeign
	}
	return payload, nil
}
