package page

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// mostToken bounds a tag, a comment or a text in memory, in bytes. In what is larger, and in all after it, the host is replaced wherever it
// stands, as in a style sheet.
const mostToken = 1 << 20

// urls are attributes that hold one URL (HTML, section "Attributes").
var urls = map[string]bool{"action": true, "background": true, "cite": true, "data": true, "formaction": true, "href": true, "longdesc": true,
	"manifest": true, "poster": true, "src": true, "xlink:href": true}

// HTML copies a page, and replaces the host in its URLs: in attributes, styles and scripts. Text that a person reads stays. Whatever
// needs no change is copied byte for byte, also if it is no valid HTML.
func (h *Host) HTML(w io.Writer, r io.Reader) error {
	z := html.NewTokenizer(r)
	z.SetMaxBuf(mostToken)
	out := bufio.NewWriter(w)
	raw, within := []byte(nil), "" // of which element the text is
	for {
		kind := z.Next()
		raw = append(raw[:0], z.Raw()...)
		switch kind {
		case html.ErrorToken:
			return h.end(out, z, raw, r)
		case html.StartTagToken, html.SelfClosingTagToken:
			token := z.Token()
			if within = token.Data; within == "noscript" {
				z.NextIsNotRawText() // for browsers without scripts it is not
			}
			if !h.tag(&token) {
				out.Write(raw)
				break
			}
			out.WriteString(token.String())
		case html.TextToken:
			if within == "style" || within == "script" {
				out.WriteString(h.String(string(raw)))
			} else {
				out.Write(raw)
			}
		default:
			if kind == html.EndTagToken {
				within = ""
			}
			out.Write(raw)
		}
		if len(z.Buffered()) == 0 { // the rest may be long in coming
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// end copies the rest of a page whose tokens are too large.
func (h *Host) end(out *bufio.Writer, z *html.Tokenizer, raw []byte, r io.Reader) error {
	err := z.Err()
	if errors.Is(err, html.ErrBufferExceeded) {
		_, err = io.Copy(out, h.Text(io.MultiReader(bytes.NewReader(raw), bytes.NewReader(z.Buffered()), r)))
	} else {
		out.Write(raw)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, out.Flush())
}

// ReferrerPolicy returns a policy by which no other site learns of the pseudonym: that of the site if it is such a one (Referrer Policy,
// section 3).
func ReferrerPolicy(text string) string {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "no-referrer", "never": // as it was called in an older version
		return "no-referrer"
	}
	return "same-origin"
}

// contentOf returns what replaces in the content of an element meta, which may stand for a header.
func (h *Host) contentOf(t *html.Token) func(string) string {
	for _, a := range t.Attr {
		switch {
		case a.Key == "name" && strings.EqualFold(strings.TrimSpace(a.Val), "referrer"):
			return ReferrerPolicy
		case a.Key == "http-equiv" && strings.EqualFold(strings.TrimSpace(a.Val), "Content-Security-Policy"):
			return h.Names
		}
	}
	return h.String
}

// tag replaces in the attributes of a tag, and reports whether it had to.
func (h *Host) tag(t *html.Token) (changed bool) {
	for i := range t.Attr {
		a := &t.Attr[i]
		key := strings.ToLower(a.Key)
		value := a.Val
		switch {
		case key == "referrerpolicy" && value != "":
			value = ReferrerPolicy(value)
		case key == "content" && t.Data == "meta":
			value = h.contentOf(t)(value)
		case urls[key]:
			if value = h.URL(value); value != a.Val {
				break
			}
			switch {
			case t.Data == "a", t.Data == "area":
				value = elsewhere(value, h.link)
			case key == "action", key == "formaction":
				value = elsewhere(value, h.form)
			}
		case key == "srcset", key == "imagesrcset", key == "content", key == "style", key == "ping", key == "srcdoc", strings.HasPrefix(key, "data-"), strings.HasPrefix(key, "on"):
			value = h.String(value)
		}
		if value != a.Val {
			a.Val, changed = value, true
		}
	}
	return h.unsealed(t) || changed
}

// unsealed removes the hash of a style sheet of the site itself, or of a script, since [Host.Text] may have changed that. It reports whether there was
// one.
func (h *Host) unsealed(t *html.Token) bool {
	own := false
	for _, a := range t.Attr {
		u, err := url.Parse(strings.TrimSpace(a.Val))
		own = own || (t.Data == "link" && a.Key == "href" || h.open && t.Data == "script" && a.Key == "src") && err == nil && (u.Host == "" || u.Host == string(h.to))
	}
	before := len(t.Attr)
	if own {
		t.Attr = slices.DeleteFunc(t.Attr, func(a html.Attribute) bool { return a.Key == "integrity" })
	}
	return len(t.Attr) < before
}

// elsewhere replaces the URL of another site, if by, which may be nil, says so.
func elsewhere(text string, by func(*url.URL) (string, bool)) string {
	if by == nil {
		return text
	}
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Host == "" {
		return text
	}
	if to, ok := by(u); ok {
		return to
	}
	return text
}

// URL replaces the host of one URL, as a browser reads it, and makes it https.
func (h *Host) URL(text string) string {
	trimmed := strings.TrimSpace(text)
	if !strings.Contains(strings.ToLower(trimmed), string(h.from)) {
		return text
	}
	u, err := url.Parse(trimmed)
	if err != nil {
		return h.String(text)
	}
	if !strings.EqualFold(u.Hostname(), string(h.from)) || u.Port() != "" && u.Port() != "80" && u.Port() != "443" {
		return text
	}
	switch u.Scheme {
	case "http":
		u.Scheme = "https"
	case "ws":
		u.Scheme = "wss"
	case "", "https", "wss":
	default:
		return text
	}
	u.Host = string(h.to)
	return u.String()
}
