package carrier

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"

	"golang.org/x/net/html"
)

// inText finds data URIs, as in CSS.
func inText(text []byte) []slot { return uris(text, 0) }

// uris finds data URIs in base64 (RFC 2397) with something that hides bytes, such as a picture or an inline source map.
func uris(text []byte, at int) (slots []slot) {
	const scheme, end = "data:", ";base64,"
	for {
		i := bytes.Index(text, []byte(scheme))
		if i < 0 {
			return slots
		}
		text, at = text[i+len(scheme):], at+i+len(scheme)
		kind, _, found := strings.Cut(string(text[:min(len(text), maxKind)]), end)
		if !found {
			continue
		}
		start := len(kind) + len(end)
		kind, _, _ = strings.Cut(kind, ";") // parameters, such as charset
		in := inside(kind)
		if in == nil {
			continue
		}
		size := run(text[start:])
		slots = append(slots, slot{at: at + start, size: size, in: within64{in}, elastic: true})
		text, at = text[start+size:], at+start+size
	}
}

const maxKind = 64 // bytes up to the data of a URI

// inside returns the carrier of what a data URI holds, or nil.
func inside(mediaType string) Carrier {
	switch mediaType {
	case "image/png", "image/jpeg", "font/woff2", "application/font-woff2", "application/json":
		return For(mediaType)
	}
	return nil
}

// run is how many bytes at the beginning of text are base64.
func run(text []byte) int {
	for i, b := range text {
		if !isWord(b) && b != '+' && b != '/' && b != '=' {
			return i
		}
	}
	return len(text)
}

// within64 is a carrier of what is in base64, with padding.
type within64 struct{ in Carrier }

// Capacity implements [Carrier].
func (w within64) Capacity(original []byte) int {
	decoded, err := base64.StdEncoding.DecodeString(string(original))
	if err != nil {
		return 0
	}
	return w.in.Capacity(decoded)
}

// Embed implements [Carrier].
func (w within64) Embed(original, payload []byte) ([]byte, error) {
	if len(payload) == 0 {
		return original, nil
	}
	decoded, err := base64.StdEncoding.DecodeString(string(original))
	if err != nil {
		return nil, err
	}
	changed, err := w.in.Embed(decoded, payload)
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.AppendEncode(nil, changed), nil
}

// Extract implements [Carrier].
func (w within64) Extract(original, changed []byte) ([]byte, error) {
	if w.Capacity(original) == 0 {
		if !bytes.Equal(original, changed) {
			return nil, ErrForeign
		}
		return nil, nil
	}
	before, err := base64.StdEncoding.DecodeString(string(original))
	if err != nil {
		return nil, ErrForeign
	}
	now, err := base64.StdEncoding.Strict().DecodeString(string(changed))
	if err != nil {
		return nil, ErrForeign
	}
	return w.in.Extract(before, now)
}

// inJSON finds values that are random tokens, and data URIs.
func inJSON(text []byte) []slot { return once(text, jsonValues(text, 0)) }

// jsonValues finds slots in the values of JSON, but not in its names. Values with escapes are left alone.
func jsonValues(text []byte, at int) (slots []slot) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var open []level
	for {
		t, err := decoder.Token()
		if err == io.EOF && len(open) == 0 {
			return slots
		} else if err != nil {
			return nil
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			open = append(open, level{t == json.Delim('{'), true})
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		name := len(open) > 0 && open[len(open)-1].object && open[len(open)-1].name
		if value, isText := t.(string); isText && !name {
			end := int(decoder.InputOffset()) - 1
			if start := end - len(value); start > 0 && text[start-1] == '"' && string(text[start:end]) == value {
				slots = append(slots, inValue([]byte(value), at+start)...)
			}
		}
		if len(open) > 0 {
			open[len(open)-1].name = !name
		}
	}
}

// level is a list or an object that is open.
type level struct {
	object bool
	name   bool // in an object, the next token is a name
}

func inValue(value []byte, at int) []slot {
	if found := uris(value, at); len(found) > 0 {
		return found
	}
	return opaque(value, at)
}

// inHTML finds hidden fields and tokens against forged requests with random values, the JSON state of page frameworks, and data
// URIs.
func inHTML(document []byte) (slots []slot) {
	at, state := 0, false
	for z := html.NewTokenizer(bytes.NewReader(document)); ; {
		kind := z.Next()
		if kind == html.ErrorToken {
			return once(document, slots)
		}
		part := z.Raw()
		part = document[at : at+len(part)] // Token changes the tokenizer's own
		switch kind {
		case html.TextToken:
			if state {
				slots = append(slots, jsonValues(part, at)...)
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			token := z.Token()
			attributes := map[string]string{}
			for _, a := range token.Attr {
				attributes[a.Key] = a.Val
			}
			state = token.Data == "script" && strings.HasSuffix(attributes["type"], "json")
			slots = append(slots, inTag(token.Data, attributes, part, at)...)
		default:
			state = false
		}
		at += len(part)
	}
}

// inTag finds slots in the attributes of a tag.
func inTag(name string, attributes map[string]string, tag []byte, at int) []slot {
	value := ""
	switch {
	case name == "input" && strings.EqualFold(attributes["type"], "hidden"):
		value = attributes["value"]
	case name == "meta" && (strings.Contains(attributes["name"], "csrf") || strings.Contains(attributes["name"], "xsrf")):
		value = attributes["content"]
	case name == "img":
		value = attributes["src"]
	}
	// A value with entities is not in the tag as it is, and is left alone.
	if value == "" || bytes.Count(tag, []byte(value)) != 1 {
		return nil
	}
	return inValue([]byte(value), at+bytes.Index(tag, []byte(value)))
}
