package carrier

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"

	"golang.org/x/net/html"
)

// inText finds pictures in data URIs, as in CSS and JavaScript.
func inText(text []byte) []slot { return pictures(text, 0) }

// pictures finds data URIs with PNG.
func pictures(text []byte, at int) (slots []slot) {
	prefix := []byte("data:image/png;base64,")
	for {
		i := bytes.Index(text, prefix)
		if i < 0 {
			return slots
		}
		i += len(prefix)
		size := run(text[i:])
		slots = append(slots, slot{at: at + i, size: size, in: within64{picture{}}, elastic: true})
		text, at = text[i+size:], at+i+size
	}
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

// inJSON finds values that are random tokens, and pictures.
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
	if found := pictures(value, at); len(found) > 0 {
		return found
	}
	return opaque(value, at)
}

// inHTML finds hidden fields and tokens against forged requests with random values, the JSON state of page frameworks, and pictures in
// data URIs.
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
