package wgconf

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"heddle/path"
)

const maxFile = 1 << 20 // bytes; real files are below 4 KiB

// parser is the state of parsing. Errors name the line.
type parser struct {
	name    string
	line    int
	section *section // the open section; nil before the first
	config  Config
	seen    map[string]int // lines of sections and of keys that must be unique
}

// Parse parses a WireGuard file. name is the file's name in errors. Errors are *[path.Error] with the line, the reason and a
// hint; they never repeat a key.
func Parse(name string, data []byte) (*Config, error) {
	p := &parser{name: name, seen: map[string]int{}}
	if len(data) > maxFile {
		return nil, p.fail(fmt.Sprintf("it is larger than %d bytes", maxFile), "give a WireGuard file")
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if what := foreign(data); what != "" {
		return nil, p.fail("it is not a WireGuard file: it looks like "+what,
			"give the file that wg-quick would take: it starts with [Interface]")
	}
	for line := range strings.Lines(string(data)) {
		p.line++
		text, _, _ := strings.Cut(line, "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if err := p.read(text); err != nil {
			return nil, err
		}
	}
	p.line = 0
	if err := p.complete(); err != nil {
		return nil, err
	}
	return &p.config, nil
}

// fail returns an error about the current line, or about the whole file before the first one.
func (p *parser) fail(why, hint string) error {
	what := p.name
	if p.line > 0 {
		what = fmt.Sprintf("%s:%d", p.name, p.line)
	}
	return &path.Error{What: what, Why: why, Hint: hint}
}

// read parses one line without comment and outer space.
func (p *parser) read(text string) error {
	if !utf8.ValidString(text) {
		return p.fail("it is not UTF-8 text", "save the file as plain text in UTF-8")
	}
	if strings.HasPrefix(text, "[") {
		return p.open(text)
	}
	key, value, found := strings.Cut(text, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	if !found {
		return p.fail("the line is neither a [Section] nor Key = Value", "write for example MTU = 1420")
	}
	if value == "" {
		return p.fail(fmt.Sprintf("%s has no value", shorten(key)), "give it one, or remove the line")
	}
	return p.assign(key, value)
}

func (p *parser) open(text string) error {
	title := strings.Join(strings.Fields(text), "")
	for _, s := range []*section{&interfaceSection, &peerSection} {
		if !strings.EqualFold(title, s.title) {
			continue
		}
		if first, again := p.seen[s.title]; again {
			hint := "keep one"
			if s == &peerSection {
				hint = "a session is split towards one server: keep the [Peer] that has an Endpoint, and give others a file of their own"
			}
			return p.fail(fmt.Sprintf("there is a second %s; the first is on line %d", s.title, first), hint)
		}
		p.section, p.seen[s.title] = s, p.line
		return nil
	}
	return p.fail(fmt.Sprintf("there is no section called %s", shorten(text)), "sections are [Interface] and [Peer]")
}

// assign parses one Key = Value of the open section.
func (p *parser) assign(key, value string) error {
	if p.section == nil {
		return p.fail(fmt.Sprintf("%s stands before any section", shorten(key)), "the first line is [Interface]")
	}
	lower := strings.ToLower(key)
	f, known := p.section.fields[lower]
	if !known {
		return p.fail(fmt.Sprintf("%s has no key called %s", p.section.title, shorten(key)), p.suggest(lower))
	}
	if !f.repeats {
		id := p.section.title + lower
		if first, again := p.seen[id]; again {
			return p.fail(fmt.Sprintf("%s is given twice; first on line %d", f.name, first), "keep one of them")
		}
		p.seen[id] = p.line
	}
	if why, hint := f.set(&p.config, value); why != "" {
		return p.fail(f.name+": "+why, hint)
	}
	return nil
}

// suggest returns where an unknown key may belong.
func (p *parser) suggest(key string) string {
	for _, s := range []section{interfaceSection, peerSection} {
		if f, ok := s.fields[key]; ok {
			return fmt.Sprintf("%s belongs in %s", f.name, s.title)
		}
	}
	return "keys here: " + names(p.section.fields)
}

// complete checks the whole file.
func (p *parser) complete() error {
	c := &p.config
	switch {
	case p.seen[interfaceSection.title] == 0:
		return p.fail("there is no [Interface]", "give the whole file, with [Interface] and [Peer]")
	case c.Interface.PrivateKey.IsZero():
		return p.fail("[Interface] has no PrivateKey", "add the private key that `wg genkey` made, or ask whoever gave you the file")
	case len(c.Interface.Addresses) == 0:
		return p.fail("[Interface] has no Address", "add the address that the server gave you, such as Address = 10.0.0.2/32")
	case p.seen[peerSection.title] == 0:
		return p.fail("there is no [Peer]", "add the server as a [Peer] with PublicKey, AllowedIPs and Endpoint")
	case c.Peer.PublicKey.IsZero():
		return p.fail("[Peer] has no PublicKey", "add the server's public key")
	case c.Peer.Endpoint == "":
		return p.fail("[Peer] has no Endpoint", "add the server's address, such as Endpoint = vpn.example.com:51820; a server's own file cannot be split")
	case len(c.Peer.AllowedIPs) == 0:
		return p.fail("[Peer] has no AllowedIPs, so that nothing would use the tunnel", "add AllowedIPs = 0.0.0.0/0, ::/0 for everything")
	}
	return nil
}

// shorten quotes text of the file for an error, truncated, and never a key.
func shorten(text string) string {
	if looksLikeKey(text) {
		return "(hidden: it may be a key)"
	}
	if len(text) > 40 {
		text = strings.ToValidUTF8(text[:40], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}
