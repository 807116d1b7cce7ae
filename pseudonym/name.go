// Package pseudonym has the names of PoPSiCl (Xiao, Reiter, Zhang, PoPETs 2017): a pseudonym is a name in a cloud's zone by which one
// client reaches one tenant, and which tells an observer nothing about the tenant.
package pseudonym

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"heddle/internal/errhint"
)

// Label is the first label of a pseudonym. It is random, so it is independent of the tenant and of other labels (requirement R1).
type Label string

const (
	labelBytes = 16 // of randomness
	labelChars = 26
)

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewLabel draws a label.
func NewLabel() Label {
	var b [labelBytes]byte
	_, _ = rand.Read(b[:]) // it never fails
	return Label(encoding.EncodeToString(b[:]))
}

// IsLabel reports whether a text may be a label, whether anybody has it or not.
func IsLabel(text string) bool {
	b, err := encoding.DecodeString(text)
	return err == nil && len(b) == labelBytes && encoding.EncodeToString(b) == text
}

// Sites is no label. A change that has it in place of a label says that a site was added or removed.
const Sites Label = "*"

// Hellos is no label either. It says that there is a new key that opens encrypted ClientHellos.
const Hellos Label = "**"

// Addresses is no label either. It says that there is a new key of pseudo-addresses, or a new number of a tenant.
const Addresses Label = "***"

// Owner and Capability are random. Owner is the same for all pseudonyms of one person. A capability is in each URL by which a
// browser comes to a pseudonym from elsewhere, since other sites cannot know it (section 4.3 of the paper).
type (
	Owner      [16]byte
	Capability [16]byte
)

// NewOwner draws an identifier.
func NewOwner() (o Owner) {
	_, _ = rand.Read(o[:])
	return o
}

// NewCapability draws a capability.
func NewCapability() (c Capability) {
	_, _ = rand.Read(c[:])
	return c
}

// String returns the text that a URL has.
func (c Capability) String() string { return encoding.EncodeToString(c[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (c Capability) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *Capability) UnmarshalText(text []byte) error {
	b, err := encoding.DecodeString(string(text))
	if err != nil || len(b) != len(c) {
		return errors.New("it is no capability")
	}
	copy(c[:], b)
	return nil
}

// Is reports whether a text is this capability, in a time that depends on neither.
func (c Capability) Is(text string) bool {
	return subtle.ConstantTimeCompare([]byte(text), []byte(c.String())) == 1
}

// CapabilityKey is the key of a capability in the query of a URL.
const CapabilityKey = "pseudonym"

// ErrNone says that there is no such pseudonym or site.
var ErrNone = errors.New("there is none")

// Zone is the domain of a cloud, in lower case and without a dot at the end.
type Zone string

// ParseZone checks and normalises the name of a zone.
func ParseZone(text string) (Zone, error) {
	name, err := ParseHost(text)
	if err == nil && !strings.Contains(name, ".") {
		err = &errhint.Error{What: "zone " + text, Why: "it has no dot", Hint: "take a domain of yours, such as cloud.example"}
	}
	return Zone(name), err
}

// Name is the whole name of a pseudonym.
func (z Zone) Name(l Label) string { return string(l) + "." + string(z) }

// Store is the name of the cloud's store. It is a site of the cloud too: people manage their pseudonyms by their own pseudonym of it.
func (z Zone) Store() string { return "store." + string(z) }

// Linker is the name of the cloud's linker, which links between sites lead to. It is the same for all: by a name of her own two sites
// could find that they have the same visitor.
func (z Zone) Linker() string { return "linker." + string(z) }

// Label returns the label of a name in the zone, in any case and with or without a dot at its end, as DNS and TLS carry it. ok is
// false for the zone itself, other names, and labels that no pseudonym can have.
func (z Zone) Label(name string) (l Label, ok bool) {
	text, in := strings.CutSuffix(strings.ToLower(strings.TrimSuffix(name, ".")), "."+string(z))
	return Label(text), in && IsLabel(text)
}

var hosts = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(true), idna.VerifyDNSLength(true))

// ParseHost normalises the host name of a site that a person typed: lower case, in its ASCII form (RFC 5891), without a dot at the
// end. It refuses addresses, ports, URLs, wildcards and names whose Unicode form looks like another one.
func ParseHost(text string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", &errhint.Error{What: fmt.Sprintf("the name %q", text), Why: why, Hint: "type a name such as www.example.com"}
	}
	name := strings.TrimSuffix(strings.TrimSpace(text), ".")
	switch {
	case name == "":
		return refuse("it is empty")
	case !utf8.ValidString(name):
		return refuse("it is not UTF-8")
	case strings.ContainsAny(name, "/:@?#*[]"):
		return refuse("it is no host name")
	}
	ascii, err := hosts.ToASCII(name)
	if err != nil {
		return refuse("it is no host name")
	}
	shown, err := hosts.ToUnicode(ascii)
	if err != nil {
		return refuse("it is no host name")
	}
	labels := strings.Split(shown, ".")
	for _, label := range labels {
		if label == "" || mixes(label) {
			return refuse("it mixes letters of several scripts, or has an empty part, and may imitate another name")
		}
	}
	if last := labels[len(labels)-1]; last[0] >= '0' && last[0] <= '9' {
		return refuse("it is an address")
	}
	return ascii, nil
}
