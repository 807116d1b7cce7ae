package masque

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// WellKnown is the default path of the template (RFC 9298, section 2).
const WellKnown = "/.well-known/masque/udp/{target_host}/{target_port}/"

const (
	wellKnownPrefix = "/.well-known/masque/udp/"
	maxTemplate     = 2048
	maxHost         = 253 // bytes of a DNS name
	hostVariable    = "target_host"
	portVariable    = "target_port"
)

// Template is a proxy's URI template (RFC 9298, section 2): up to level 3 of RFC 6570, with simple and form-style expansion.
type Template struct {
	// Host and Port are where the proxy is; Authority is the same as written.
	Host      string
	Port      uint16
	Authority string
	parts     []part
}

// part is a literal or an expression.
type part struct {
	literal   string
	operator  byte // 0, '?' or '&'
	variables []string
}

// ParseTemplate parses https://HOST[:PORT][/PATH]. Without a path it is [WellKnown].
func ParseTemplate(text string) (Template, error) {
	if len(text) > maxTemplate {
		return Template{}, errors.New("it is longer than any real one")
	}
	for _, c := range []byte(text) {
		if c < 0x21 || c > 0x7e {
			return Template{}, fmt.Errorf("it holds %q, which is no printable ASCII character", rune(c))
		}
	}
	rest, ok := strings.CutPrefix(text, "https://")
	if !ok {
		return Template{}, errors.New("it does not begin with https://")
	}
	end := strings.IndexAny(rest, "/?{#")
	if end < 0 {
		end = len(rest)
	}
	t := Template{Authority: rest[:end]}
	if err := t.locate(); err != nil {
		return Template{}, err
	}
	place := rest[end:]
	if place == "" || place == "/" {
		place = WellKnown
	}
	if place[0] != '/' {
		return Template{}, errors.New("its path does not begin with a slash")
	}
	var err error
	if t.parts, err = parseParts(place); err != nil {
		return Template{}, err
	}
	for _, name := range []string{hostVariable, portVariable} {
		if !slices.ContainsFunc(t.parts, func(p part) bool { return slices.Contains(p.variables, name) }) {
			return Template{}, fmt.Errorf("it lacks {%s}", name)
		}
	}
	if _, err := url.Parse(t.Expand(netip.AddrPort{})); err != nil {
		return Template{}, errors.New("it gives no URL")
	}
	return t, nil
}

func (t *Template) locate() error {
	u, err := url.Parse("https://" + t.Authority)
	if err != nil || u.User != nil || u.Hostname() == "" || strings.HasSuffix(t.Authority, ":") {
		return fmt.Errorf("%q is no host, or host and port", t.Authority)
	}
	t.Host, t.Port = u.Hostname(), 443
	if u.Port() != "" {
		port, err := parsePort(u.Port())
		if err != nil {
			return err
		}
		t.Port = port
	}
	return CheckHost(t.Host)
}

func parseParts(text string) ([]part, error) {
	var parts []part
	for text != "" {
		open := strings.IndexAny(text, "{}#")
		if open < 0 {
			return append(parts, part{literal: text}), nil
		}
		if text[open] != '{' {
			return nil, fmt.Errorf("it holds %q where that has no meaning", text[open])
		}
		if open > 0 {
			parts = append(parts, part{literal: text[:open]})
		}
		inside, after, found := strings.Cut(text[open+1:], "}")
		if !found {
			return nil, errors.New("it holds a { that is never closed")
		}
		p, err := parseExpression(inside)
		if err != nil {
			return nil, err
		}
		parts, text = append(parts, p), after
	}
	return parts, nil
}

func parseExpression(text string) (part, error) {
	var p part
	if text != "" && (text[0] == '?' || text[0] == '&') {
		p.operator, text = text[0], text[1:]
	}
	p.variables = strings.Split(text, ",")
	for _, name := range p.variables {
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") != "" {
			return part{}, fmt.Errorf("{%s} is none of {NAME}, {?NAME,...} and {&NAME,...}", text)
		}
	}
	return p, nil
}

// Expand returns the URL for one target (RFC 6570, section 3.2).
func (t Template) Expand(to netip.AddrPort) string {
	values := map[string]string{
		hostVariable: url.QueryEscape(to.Addr().Unmap().WithZone("").String()), // an address has no space
		portVariable: strconv.Itoa(int(to.Port())),
	}
	var b strings.Builder
	b.WriteString("https://" + t.Authority)
	for _, p := range t.parts {
		b.WriteString(p.literal)
		first, separator := "", ","
		switch p.operator {
		case '?':
			first, separator = "?", "&"
		case '&':
			first, separator = "&", "&"
		}
		for _, name := range p.variables {
			value, defined := values[name]
			if !defined {
				continue
			}
			b.WriteString(first)
			first = separator
			if p.operator != 0 {
				b.WriteString(name + "=")
			}
			b.WriteString(value)
		}
	}
	return b.String()
}

// ParseTarget parses the escaped path of a request to [WellKnown]. The host is an address or a name.
func ParseTarget(escaped string) (host string, port uint16, err error) {
	rest, found := strings.CutPrefix(escaped, wellKnownPrefix)
	rest, closed := strings.CutSuffix(rest, "/")
	hostText, portText, both := strings.Cut(rest, "/")
	if !found || !closed || !both || strings.Contains(portText, "/") {
		return "", 0, errNotHere
	}
	if host, err = url.PathUnescape(hostText); err != nil {
		return "", 0, err
	}
	if err := CheckHost(host); err != nil {
		return "", 0, err
	}
	port, err = parsePort(portText)
	return host, port, err
}

var errNotHere = errors.New("nothing is served under this path")

// CheckHost accepts an address without a zone, or a name that fits DNS.
func CheckHost(host string) error {
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return errors.New("an address with a zone means something on one machine only")
		}
		return nil
	}
	if host == "" || len(host) > maxHost {
		return errors.New("no host, or a name longer than DNS has")
	}
	for _, label := range strings.Split(strings.TrimSuffix(host, "."), ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return fmt.Errorf("%q is neither an address nor a name", host)
		}
	}
	return nil
}

func parsePort(text string) (uint16, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("%q is no port", text)
	}
	return uint16(port), nil
}
