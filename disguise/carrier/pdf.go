package carrier

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"strconv"
)

// inPDF finds what no page of a PDF depends on (ISO 32000-2): the content of attached files that are encrypted or compressed already, and,
// if nobody opens the document without a password, all streams that are encrypted with AES. RC4 is left alone: there, two answers with
// the same key would share a key stream, which an observer of both sees.
func inPDF(file []byte) (slots []slot) {
	if !bytes.Contains(file[:min(len(file), 1024)], []byte("%PDF-")) {
		return nil
	}
	lock, encrypted := lockOf(file)
	if encrypted && !lock.closed() {
		return nil
	}
	for o := range objects(file) {
		switch {
		case o.size == 0:
		case !encrypted:
			if in, fits := o.attached(file); fits {
				slots = append(slots, slot{at: o.at, size: o.body + o.size - o.at, in: in})
			}
		case lock.covers(o.entries):
			slots = append(slots, slot{at: o.body, size: o.size, in: all{raw{}}})
		}
	}
	return slots
}

// object is an object of a PDF that is a dictionary, perhaps with a stream. Offsets are in the file.
type object struct {
	number     int // 0 for the trailer, which is no object
	entries    dictionary
	at         int // of the dictionary
	body, size int // of the stream
}

// entry is a name of a dictionary and its value as it is written.
type entry struct {
	name  string
	value []byte
	at    int // of the value, in the file
}

type dictionary []entry

// Bounds of what a hostile file may claim.
const (
	maxEntries    = 1024
	maxDictionary = 64 << 10 // bytes
	maxNested     = 16
)

// get returns the value of a name, or nil.
func (d dictionary) get(name string) []byte {
	for _, e := range d {
		if e.name == name {
			return e.value
		}
	}
	return nil
}

// is reports whether the value of a name is the name that is given.
func (d dictionary) is(name, value string) bool { return string(d.get(name)) == "/"+value }

// integer returns the value of a name if it is a number and no reference, or else -1.
func (d dictionary) integer(name string) int {
	n, err := strconv.Atoi(string(d.get(name)))
	if err != nil {
		return -1
	}
	return n
}

// objects yields the dictionaries of a file in their order, without looking at its tables, up to one that is damaged. It sees nothing of
// object streams, which hold no streams.
func objects(file []byte) func(func(object) bool) {
	return func(yield func(object) bool) {
		for at := 0; ; {
			next, number := keyword(file, at)
			if next < 0 {
				return
			}
			o := object{number: number, at: blank(file, next)}
			if at = next; !bytes.HasPrefix(file[o.at:], []byte("<<")) {
				continue
			}
			read := reader{file: file[:min(len(file), o.at+maxDictionary)], at: o.at}
			if o.entries = read.dictionary(0); read.failed {
				return
			}
			at = read.at
			if o.number > 0 {
				if o.body, o.size = stream(file, read.at, o.entries.integer("Length")); o.size < 0 {
					return
				}
				at = max(at, o.body+o.size)
			}
			if !yield(o) {
				return
			}
		}
	}
}

// keyword finds the next begin of an object, or of a trailer, whose number is 0. It returns the offset after it.
func keyword(file []byte, at int) (next, number int) {
	for at < len(file) {
		i := bytes.IndexAny(file[at:], "jt")
		if i < 0 {
			break
		}
		at += i + 1
		if bytes.HasSuffix(file[:at], []byte("obj")) {
			if number = numbered(file[:at-len("obj")]); number > 0 {
				return at, number
			}
		} else if bytes.HasPrefix(file[at-1:], []byte("trailer")) {
			return at - 1 + len("trailer"), 0
		}
	}
	return -1, 0
}

// numbered returns the number of an object from "12 0 " before its keyword, or 0.
func numbered(before []byte) int {
	fields := bytes.Fields(before[max(0, len(before)-24):])
	if len(fields) < 2 || !isBlank(before[len(before)-1]) {
		return 0
	}
	generation, number := fields[len(fields)-1], fields[len(fields)-2]
	if !within(generation, "0123456789") || len(number) > 9 {
		return 0
	}
	// The number is the digits at the end. Bytes before them belong to another token.
	number = number[bytes.LastIndexFunc(number, func(r rune) bool { return r < '0' || r > '9' })+1:]
	n, _ := strconv.Atoi(string(number))
	return n
}

func isBlank(b byte) bool {
	return b == ' ' || b == '\n' || b == '\r' || b == '\t' || b == '\f' || b == 0
}

// blank returns the offset after white space.
func blank(file []byte, at int) int {
	for at < len(file) && isBlank(file[at]) {
		at++
	}
	return at
}

// stream returns where the data of a stream are whose dictionary ends at an offset. A length that is an object of its own is not looked
// up: then line ends at the end of the data are not taken for data. The size is -1 without an end.
func stream(file []byte, at, length int) (body, size int) {
	at = blank(file, at)
	rest, found := bytes.CutPrefix(file[at:], []byte("stream"))
	if !found {
		return 0, 0
	}
	if rest, found = bytes.CutPrefix(bytes.TrimPrefix(rest, []byte("\r")), []byte("\n")); !found {
		return 0, 0
	}
	const end = "endstream"
	if length >= 0 && length <= len(rest) && bytes.HasPrefix(rest[blank(rest, length):], []byte(end)) {
		return len(file) - len(rest), length
	}
	if size = bytes.Index(rest, []byte(end)); size < 0 {
		return 0, -1
	}
	return len(file) - len(rest), len(bytes.TrimRight(rest[:size], "\r\n"))
}

// attachment is a carrier of the dictionary of an attached file together with its stream: it states the sum of the file, if it did.
type attachment struct {
	data int // where the stream is
	sum  int // where the sum is, in hexadecimal, or -1
	in   Carrier
}

// attached returns the carrier of an object if it is an attached file that looks random.
func (o *object) attached(file []byte) (attachment, bool) {
	a := attachment{o.body - o.at, -1, all{raw{}}}
	if !o.entries.is("Type", "EmbeddedFile") || o.entries.get("DecodeParms") != nil || o.entries.get("F") != nil {
		return a, false
	}
	content := file[o.body : o.body+o.size]
	switch filter := o.entries.get("Filter"); string(bytes.Trim(filter, "[] \r\n")) {
	case "":
	case "/FlateDecode":
		a.in, content = stored{}, stored{}.content(content)
	default:
		return a, false
	}
	if len(content) < leastAttached || !looksRandom(content, raw{}) {
		return a, false
	}
	params := o.entries.get("Params")
	if params == nil {
		return a, true
	}
	read := reader{file: params}
	sum := read.dictionary(0).get("CheckSum")
	switch {
	case read.failed:
		return a, false
	case sum == nil:
		return a, true
	case len(sum) != 2+2*md5.Size || !bytes.EqualFold(sum[1:len(sum)-1], sumOf(content)):
		return a, false
	}
	a.sum = bytes.Index(file[o.at:o.body], sum) + 1
	return a, true
}

const leastAttached = 64 // bytes: a shorter file may look random by chance

func sumOf(content []byte) []byte {
	sum := md5.Sum(content)
	return hex.AppendEncode(nil, sum[:])
}

// Capacity implements [Carrier].
func (a attachment) Capacity(original []byte) int { return a.in.Capacity(original[a.data:]) }

// Embed implements [Carrier].
func (a attachment) Embed(original, payload []byte) ([]byte, error) {
	data, err := a.in.Embed(original[a.data:], payload)
	if err != nil {
		return nil, err
	}
	out := append(bytes.Clone(original[:a.data]), data...)
	if a.sum < 0 {
		return out, nil
	}
	sum := sumOf(payload)
	if written := out[a.sum:][:len(sum)]; !bytes.Equal(written, bytes.ToLower(written)) {
		sum = bytes.ToUpper(sum)
	}
	copy(out[a.sum:], sum)
	return out, nil
}

// Extract implements [Carrier].
func (a attachment) Extract(original, changed []byte) ([]byte, error) {
	payload, err := a.in.Extract(original[a.data:], changed[a.data:])
	if err != nil {
		return nil, err
	}
	return only(a, original, changed, payload)
}
