package handshake

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"heddle/path"
)

// Transport is the name of the pluggable transport.
const Transport = "heddle"

// Line is a bridge line: all that a client needs to use a bridge.
type Line struct {
	Address     netip.AddrPort
	Fingerprint string // of the Tor bridge; may be empty
	Args
}

// Args are the arguments of a bridge line. Tor gives a client only these and the address.
type Args struct {
	Key    PublicKey
	Token  []byte   // may be empty
	Covers []string // that the bridge accepts, with their settings, as cover.ParseSpec reads them; empty is any
}

// The text of key= is base64url of the version, the key and a check. The check finds a wrong character, which would otherwise
// look like a bridge that does not answer.
const (
	checkSize = 3
	keyBytes  = 1 + 32 + checkSize
)

// MaxToken is the most bytes of a token: a hello without padding then has at most 128 bytes, for which covers make room.
const MaxToken = 24

func (a Args) check() []byte {
	sum := sha256.Sum256(slices.Concat([]byte("heddle disguise 1 line"), a.Key[:], a.Token))
	return sum[:checkSize]
}

// Pairs returns the arguments in the order in which a line has them. key= is the last, because a cut line then has a wrong one.
func (a Args) Pairs() (pairs [][2]string) {
	if len(a.Covers) > 0 {
		pairs = append(pairs, [2]string{"covers", strings.Join(a.Covers, ",")})
	}
	if len(a.Token) > 0 {
		pairs = append(pairs, [2]string{"token", base64.RawURLEncoding.EncodeToString(a.Token)})
	}
	return append(pairs, [2]string{"key", base64.RawURLEncoding.EncodeToString(slices.Concat([]byte{Version}, a.Key[:], a.check()))})
}

// String returns the line, with Tor's word Bridge in front.
func (l Line) String() string {
	words := []string{"Bridge", Transport, l.Address.String()}
	if l.Fingerprint != "" {
		words = append(words, l.Fingerprint)
	}
	for _, pair := range l.Pairs() {
		words = append(words, pair[0]+"="+pair[1])
	}
	return strings.Join(words, " ")
}

var (
	fingerprintForm = regexp.MustCompile(`^[0-9A-Fa-f]{40}$`)
	coverForm       = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9.:=_-]{0,126}$`) // a name, and settings behind it
)

const maxLine = 2048 // bytes

func lineError(why, hint string, values ...any) error {
	return &path.Error{What: "bridge line", Why: fmt.Sprintf(why, values...), Hint: hint}
}

const (
	copyHint   = "copy the whole line again; its owner prints it by `heddle disguise keys`"
	formHint   = "a line is: Bridge heddle ADDRESS:PORT [FINGERPRINT] [covers=...] [token=...] key=..."
	updateHint = "update Heddle, or ask the owner of the bridge for a line of this version"
)

// ParseLine parses the format of [Line.String]. The words Bridge and heddle may be missing.
func ParseLine(text string) (l Line, err error) {
	if len(text) > maxLine {
		return l, lineError("it has %d bytes, and at most %d are possible", formHint, len(text), maxLine)
	}
	words := strings.Fields(text)
	if len(words) > 0 && words[0] == "Bridge" {
		words = words[1:]
	}
	if len(words) > 0 && words[0] == Transport {
		words = words[1:]
	}
	if len(words) == 0 || strings.Contains(words[0], "=") { // which no error may show: it could be the token
		return l, lineError("it has no address", formHint)
	}
	if l.Address, err = parseAddress(words[0]); err != nil {
		return l, err
	}
	words = words[1:]
	if len(words) > 0 && !strings.Contains(words[0], "=") {
		if l.Fingerprint = strings.ToUpper(words[0]); !fingerprintForm.MatchString(l.Fingerprint) {
			return l, lineError("behind the address is no fingerprint, which has 40 hexadecimal digits", formHint)
		}
		words = words[1:]
	}
	values := map[string][]string{}
	for i, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return l, lineError("argument %d is no NAME=VALUE", formHint, i+1)
		}
		values[name] = append(values[name], value)
	}
	l.Args, err = ParseArgs(values)
	return l, err
}

func parseAddress(text string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return at, lineError("%.80q is no address and port", "an IPv6 address stands in brackets, as [2001:db8::1]:443; names are not possible", text)
	}
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	if at.Port() == 0 || at.Addr().IsUnspecified() || at.Addr().IsMulticast() || at.Addr().Zone() != "" {
		return at, lineError("clients cannot reach %s", "its owner knows the address and port by which clients reach the bridge", at)
	}
	return at, nil
}

// ParseArgs parses the arguments of a line, such as Tor gives them to a transport.
func ParseArgs(values map[string][]string) (a Args, err error) {
	for name, each := range values {
		switch {
		case name != "key" && name != "token" && name != "covers":
			return a, lineError("%.80q is unknown", updateHint, name+"=")
		case len(each) != 1:
			return a, lineError("%s= is there %d times", formHint, name, len(each))
		case each[0] == "":
			return a, lineError("%s= is empty", copyHint, name)
		}
	}
	if each := values["covers"]; each != nil {
		a.Covers = strings.Split(each[0], ",")
		for i, name := range a.Covers {
			if !coverForm.MatchString(name) || slices.Contains(a.Covers[:i], name) {
				return a, lineError("covers=%.80s: %.80q is no cover, or there twice", formHint, each[0], name)
			}
		}
	}
	if each := values["token"]; each != nil {
		if a.Token, err = decode(each[0]); err != nil || len(a.Token) > MaxToken {
			return a, lineError("token= is not 1 to %d bytes in base64url", copyHint, MaxToken) // the token is a secret
		}
	}
	if values["key"] == nil {
		return a, lineError("it has no key=", copyHint)
	}
	return a, a.setKey(values["key"][0])
}

func (a *Args) setKey(text string) error {
	const whole = (keyBytes*8 + 5) / 6 // characters
	if version, err := decode(text[:min(4, len(text))]); err == nil && version[0] != Version {
		return lineError("it is of version %d, and this Heddle speaks %d", updateHint, version[0], Version)
	}
	if len(text) < whole {
		return lineError("key= is cut: it has %d characters of %d", copyHint, len(text), whole)
	}
	if len(text) > whole {
		return lineError("key= is too long: it has %d characters, and not %d", copyHint, len(text), whole)
	}
	raw, err := decode(text)
	if err != nil {
		return lineError("key= is not base64url: it has a wrong character", copyHint)
	}
	copy(a.Key[:], raw[1:])
	if !bytes.Equal(raw[1+32:], a.check()) {
		return lineError("the check of key= is wrong: a character of key= or token= is wrong or missing", copyHint)
	}
	return nil
}

// decode is strict: each value has one text.
func decode(text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") { // base64 ignores them
		return nil, errors.New("it has line breaks")
	}
	return base64.RawURLEncoding.Strict().DecodeString(text)
}
