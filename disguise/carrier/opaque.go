package carrier

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"sync"

	"github.com/klauspost/compress/flate"
)

// encoding is what [base64.Encoding] offers.
type encoding interface {
	Encode(dst, src []byte)
	Decode(dst, src []byte) (int, error)
	DecodedLen(int) int
}

type hexadecimal struct{}

func (hexadecimal) Encode(dst, src []byte)              { hex.Encode(dst, src) }
func (hexadecimal) Decode(dst, src []byte) (int, error) { return hex.Decode(dst, src) }
func (hexadecimal) DecodedLen(n int) int                { return n / 2 }

type raw struct{}

func (raw) Encode(dst, src []byte)              { copy(dst, src) }
func (raw) Decode(dst, src []byte) (int, error) { return copy(dst, src), nil }
func (raw) DecodedLen(n int) int                { return n }

// all replaces all of a slot by bytes in an encoding: 3 bytes in 4 characters of base64, 1 in 2 of hex.
type all struct{ encoding }

// Capacity implements [Carrier].
func (a all) Capacity(original []byte) int { return a.DecodedLen(len(original)) }

// Embed implements [Carrier].
func (a all) Embed(original, payload []byte) ([]byte, error) {
	if len(payload) != a.Capacity(original) {
		return nil, wrongSize(len(payload))
	}
	out := make([]byte, len(original))
	a.Encode(out, payload)
	return out, nil
}

// Extract implements [Carrier].
func (a all) Extract(original, changed []byte) ([]byte, error) {
	out := make([]byte, a.DecodedLen(len(changed)))
	n, err := a.Decode(out, changed)
	if err != nil || n != a.Capacity(original) || a.differs(changed, out) {
		return nil, ErrForeign
	}
	return out, nil
}

// differs tells that the characters are another way to write the same bytes: base64 skips newlines, hex takes upper case.
func (a all) differs(changed, decoded []byte) bool {
	again := make([]byte, len(changed))
	a.Encode(again, decoded)
	return !bytes.Equal(again, changed)
}

const (
	leastHex    = 16 // characters: 8 random bytes
	leastBase64 = 20 // characters: 15 random bytes
)

// opaque returns the slots of a value that is one random token, or several with dots or colons between them: what only the server reads.
// In base64 it leaves the last, incomplete group of four characters alone.
func opaque(value []byte, at int) (slots []slot) {
	for len(value) > 0 {
		end := bytes.IndexAny(value, ".:|")
		if end < 0 {
			end = len(value)
		}
		if code, size := token(value[:end]); size > 0 {
			slots = append(slots, slot{at: at, size: size, in: all{code}})
		}
		end = min(end+1, len(value))
		value, at = value[end:], at+end
	}
	return slots
}

// inTarget finds tokens between the delimiters of a request target. Standard base64 has delimiters among its characters.
func inTarget(target []byte) (slots []slot) {
	for at := 0; at < len(target); {
		end := at
		for end < len(target) && bytes.IndexByte([]byte("/?&=;"), target[end]) < 0 {
			end++
		}
		for _, s := range opaque(target[at:end], at) {
			if s.in != Carrier(all{base64.RawStdEncoding}) {
				slots = append(slots, s)
			}
		}
		at = end + 1
	}
	return once(target, slots)
}

// token returns the encoding of random bytes, and how many of its characters can be replaced.
func token(text []byte) (encoding, int) {
	if len(text) >= leastHex && len(text)%2 == 0 && within(text, "0123456789abcdef") {
		if !within(text, "0123456789") && !ordered(text) && looksRandom(text, hexadecimal{}) {
			return hexadecimal{}, len(text)
		}
		return nil, 0
	}
	text = bytes.TrimRight(text, "=")
	text = text[:len(text)/4*4]
	if len(text) < leastBase64 {
		return nil, 0
	}
	// Without a character of one of them it is not known which base64 it is, or whether the server knows more than letters and digits.
	code := base64.RawStdEncoding
	if bytes.ContainsAny(text, "-_") {
		code = base64.RawURLEncoding
	} else if !bytes.ContainsAny(text, "+/") {
		return nil, 0
	}
	if mixed(text) && looksRandom(text, code) {
		return code, len(text)
	}
	return nil, 0
}

// ordered tells that half of the characters follow each other, as in a table of the digits: of random digits every eighth does.
func ordered(text []byte) bool {
	next := 0
	for i := range len(text) - 1 {
		if step := int(text[i+1]) - int(text[i]); step == 1 || step == -1 {
			next++
		}
	}
	return next*2 >= len(text)
}

// mixed tells that upper case, lower case and digits change as often as in random characters. Names and paths have the same alphabet, and
// what they would say in base64 looks random.
func mixed(text []byte) bool {
	var counts [4]int
	changes, last := 0, 0
	for i, b := range text {
		class := 3
		switch {
		case b >= 'a' && b <= 'z':
			class = 0
		case b >= 'A' && b <= 'Z':
			class = 1
		case b >= '0' && b <= '9':
			class = 2
		}
		if counts[class]++; i > 0 && class != last {
			changes++
		}
		last = class
	}
	// Random characters are 41 % lower case, 41 % upper case and 16 % digits. The class changes after 65 % of them.
	return counts[0]*5 >= len(text) && counts[1]*5 >= len(text) && counts[2]*16 >= len(text) && changes*5 >= len(text)*2
}

func within(text []byte, characters string) bool {
	for _, b := range text {
		if bytes.IndexByte([]byte(characters), b) < 0 {
			return false
		}
	}
	return true
}

// looksRandom tells that what the text says has no structure that shows: it is no text, repeats few bytes, and does not compress.
func looksRandom(text []byte, code encoding) bool {
	decoded := make([]byte, code.DecodedLen(len(text)))
	if _, err := code.Decode(decoded, text); err != nil {
		return false
	}
	printable, seen := 0, [256]bool{}
	for _, b := range decoded {
		if b >= ' ' && b <= '~' {
			printable++
		}
		seen[b] = true
	}
	different := 0
	for _, s := range seen {
		if s {
			different++
		}
	}
	// Random bytes are printable in 37 % of cases, and among 8 to 256 of them at least 63 % differ.
	if printable*10 >= len(decoded)*8 || different*2 < min(len(decoded), 256) {
		return false
	}
	var packed bytes.Buffer
	w := compressors.Get().(*flate.Writer)
	defer compressors.Put(w)
	w.Reset(&packed)
	w.Write(decoded) //nolint:errcheck // a buffer takes all
	w.Close()
	return packed.Len() >= len(decoded)
}

// compressors keeps them, since each has more than half a megabyte of tables.
var compressors = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestSpeed)
	return w
}}

// once leaves out slots whose text is elsewhere in the object too, where something may depend on it. What counts is their longest part
// of letters and digits.
func once(object []byte, slots []slot) (kept []slot) {
	counts := map[string]int{}
	for word := range words(object) {
		counts[string(word)]++
	}
	for _, s := range slots {
		var longest []byte
		around := object[s.at:s.end(object)]
		for word := range words(around) {
			if len(word) > len(longest) {
				longest = word
			}
		}
		if _, whole := s.in.(all); !whole || counts[string(longest)] == 1 {
			kept = append(kept, s)
		}
	}
	return kept
}

// end is where the token of a slot ends, with the incomplete group that is left alone.
func (s slot) end(object []byte) int {
	end := s.at + s.size
	for end < len(object) && isWord(object[end]) {
		end++
	}
	return end
}

const leastWord = 4 // bytes

func isWord(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// words yields the parts of letters and digits.
func words(text []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for start := 0; start < len(text); {
			end := start
			for end < len(text) && isWord(text[end]) {
				end++
			}
			if end-start >= leastWord && !yield(text[start:end]) {
				return
			}
			start = end + 1
		}
	}
}
