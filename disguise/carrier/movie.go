package carrier

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/zlib"
)

// movie hides bytes in SWF (SWF File Format Specification, version 19): in tags that a player keeps as they are or passes over, if what is
// in them looks random. It takes files that are plain or compressed by zlib.
type movie struct{}

const (
	maxTags   = 65536
	maxMovie  = 16 << 20 // bytes of a file: what a small compressed one can claim
	movieHead = 8        // bytes that are never compressed: the kind, the version, and the size without compression
)

// plain returns a file without compression, and whether it was compressed. It returns nil for other files.
func plain(file []byte) (out []byte, compressed bool) {
	if len(file) < movieHead || string(file[1:3]) != "WS" {
		return nil, false
	}
	size := int64(binary.LittleEndian.Uint32(file[4:]))
	switch {
	case file[0] == 'F' && size == int64(len(file)):
		return file, false
	case file[0] != 'C' || size < movieHead || size > maxMovie:
		return nil, false
	}
	r, err := zlib.NewReader(bytes.NewReader(file[movieHead:]))
	if err != nil {
		return nil, false
	}
	body, err := io.ReadAll(io.LimitReader(r, size-movieHead+1))
	if err != nil || int64(len(body)) != size-movieHead {
		return nil, false
	}
	return append(bytes.Clone(file[:movieHead]), body...), true
}

// Capacity implements [Carrier].
func (movie) Capacity(original []byte) int {
	file, _ := plain(original)
	return finder(inTags).Capacity(file)
}

// Embed implements [Carrier].
func (movie) Embed(original, payload []byte) ([]byte, error) {
	file, compressed := plain(original)
	changed, err := finder(inTags).Embed(file, payload)
	if err != nil {
		return nil, err
	}
	if len(payload) == 0 {
		return original, nil
	}
	if !compressed {
		return changed, nil
	}
	out := bytes.NewBuffer(bytes.Clone(original[:movieHead]))
	w := newPacker(out)
	w.Write(changed[movieHead:]) //nolint:errcheck // a buffer takes all
	w.Close()
	return out.Bytes(), nil
}

// Extract implements [Carrier].
func (c movie) Extract(original, changed []byte) (payload []byte, err error) {
	if file, _ := plain(original); finder(inTags).Capacity(file) > 0 {
		now, _ := plain(changed)
		if payload, err = finder(inTags).Extract(file, now); err != nil {
			return nil, err
		}
	}
	return only(c, original, changed, payload)
}

// Tags of SWF.
const (
	tagDebugID = 63 // a random number of the compiler
	tagBinary  = 87 // data of scripts, after 6 bytes
	firstNew   = 95 // no specification has tags from here on, and players pass over them
)

// inTags finds tags of a plain file that look random.
func inTags(file []byte) (slots []slot) {
	if len(file) <= movieHead {
		return nil
	}
	at := movieHead + (5+4*int(file[movieHead]>>3)+7)/8 + 4 // after the frame's size and rate, and their number
	for n := 0; at <= len(file)-2; n++ {
		tag := int(binary.LittleEndian.Uint16(file[at:]))
		kind, size := tag>>6, tag&0x3f
		at += 2
		if size == 0x3f {
			if len(file)-at < 4 {
				return nil
			}
			size = int(binary.LittleEndian.Uint32(file[at:]))
			at += 4
		}
		if size < 0 || size > len(file)-at || n == maxTags {
			return nil
		}
		start, end := at, at+size
		if kind == tagBinary {
			start += 6
		}
		if at = end; kind != tagDebugID && kind != tagBinary && kind < firstNew || end-start < leastBinary {
			continue
		}
		if looksRandom(file[start:end], raw{}) {
			slots = append(slots, slot{at: start, size: end - start, in: all{raw{}}})
		}
	}
	return slots
}

const leastBinary = 16 // bytes
