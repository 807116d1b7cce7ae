package client

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"heddle/identity"
)

// Modes of a grant.
const (
	ModeForward = "forward" // TCP connections and UDP flows made by the node
	ModeNAT     = "nat"     // leases of address translation in the node's kernel
	ModeSurvey  = "survey"  // measurements from the node towards a destination
)

// Modes lists all modes.
func Modes() []string { return []string{ModeForward, ModeNAT, ModeSurvey} }

const (
	grantPurpose = "heddle grant 1"
	grantPrefix  = "heddle-grant:"
	// MaxGrant bounds a grant's text, in bytes.
	MaxGrant  = 4096
	keySize   = 32
	signature = 64
	// leeway is how early a grant is accepted, since clocks differ.
	leeway = time.Minute
)

// Grant says who may use which nodes, until when, how much and for which destinations. The holder proves the bound key at
// each connection, so the text alone is useless to others.
type Grant struct {
	ID     string         `json:"id"` // names the grant for revocation and accounting: 32 hexadecimal digits, drawn by [Issue]
	Holder identity.Key   `json:"holder"`
	Nodes  []identity.Key `json:"nodes,omitempty"` // empty: every node that trusts the grantor
	From   time.Time      `json:"from"`
	Until  time.Time      `json:"until"`
	Bytes  int64          `json:"bytes,omitempty"` // bytes both ways by one node in all; 0: no limit
	To     []string       `json:"to,omitempty"`    // destinations for [ParseDestination]; empty: all public addresses
	Modes  []string       `json:"modes"`
}

// Signed is a grant with its grantor's signature, which [Signed.Verify] checks.
type Signed struct {
	Grant   Grant
	Grantor identity.Key
	text    string
}

// Issue signs a grant. It draws an ID if there is none, and truncates times to seconds.
func Issue(grantor identity.Identity, g Grant) (Signed, error) {
	if g.ID == "" {
		var id [16]byte
		rand.Read(id[:])
		g.ID = hex.EncodeToString(id[:])
	}
	g.From, g.Until = g.From.UTC().Truncate(time.Second), g.Until.UTC().Truncate(time.Second)
	if err := g.check(); err != nil {
		return Signed{}, err
	}
	body, err := json.Marshal(g)
	if err != nil {
		return Signed{}, err
	}
	sum, err := grantor.Sign(grantPurpose, body)
	if err != nil {
		return Signed{}, err
	}
	raw := slices.Concat(grantor.Key().Bytes(), sum, body)
	return ParseGrant(grantPrefix + base64.RawURLEncoding.EncodeToString(raw))
}

// check refuses what no node could accept.
func (g Grant) check() error {
	if id, err := hex.DecodeString(g.ID); err != nil || len(id) != 16 || strings.ToLower(g.ID) != g.ID {
		return errors.New("its id is not 32 hexadecimal digits")
	}
	switch {
	case g.Holder.IsZero():
		return errors.New("it has no holder")
	case slices.Contains(g.Nodes, identity.Key{}):
		return errors.New("one of its nodes has no key")
	case !g.Until.After(g.From):
		return errors.New("it ends before it begins")
	case g.Bytes < 0:
		return errors.New("it is for fewer than no bytes")
	case len(g.Modes) == 0:
		return errors.New("it is for nothing: it has no modes")
	}
	for _, mode := range g.Modes {
		if !slices.Contains(Modes(), mode) {
			return fmt.Errorf("no mode is called %.40q; modes: %s", mode, strings.Join(Modes(), ", "))
		}
	}
	for _, to := range g.To {
		if _, err := ParseDestination(to); err != nil {
			return err
		}
	}
	return nil
}

// ParseGrant reads a grant's text: heddle-grant: and, in base64url, the grantor's key, its signature and the grant as JSON
// exactly as [Issue] writes it. Unknown keys are an error, since they may be limits. It does not check the signature.
func ParseGrant(text string) (Signed, error) {
	rest, ok := strings.CutPrefix(text, grantPrefix)
	switch {
	case !ok:
		return Signed{}, errors.New(grantPrefix + " is not its beginning")
	case len(text) > MaxGrant:
		return Signed{}, fmt.Errorf("it has %d bytes, more than %d", len(text), MaxGrant)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(raw) <= keySize+signature || strings.ContainsAny(rest, "\r\n") { // base64 ignores line breaks
		return Signed{}, errors.New("it is not whole: some of its characters are missing or others")
	}
	grantor, err := identity.NewKey(raw[:keySize])
	if err != nil {
		return Signed{}, err
	}
	s := Signed{Grantor: grantor, text: text}
	body := json.NewDecoder(bytes.NewReader(raw[keySize+signature:]))
	body.DisallowUnknownFields()
	if err := body.Decode(&s.Grant); err != nil {
		return Signed{}, errors.New("what is signed is no grant, or one of a later version")
	}
	if again, err := json.Marshal(s.Grant); err != nil || !bytes.Equal(again, raw[keySize+signature:]) {
		return Signed{}, errors.New("what is signed is not as heddle writes grants")
	}
	return s, s.Grant.check()
}

// String returns the grant's text, one line.
func (s Signed) String() string { return s.text }

// IsZero reports whether there is no grant.
func (s Signed) IsZero() bool { return s.text == "" }

// MarshalText returns the same text as String.
func (s Signed) MarshalText() ([]byte, error) { return []byte(s.text), nil }

// UnmarshalText reads a grant's text.
func (s *Signed) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*s = Signed{}
		return nil
	}
	parsed, err := ParseGrant(string(text))
	if err != nil {
		return fmt.Errorf("grant: %w", err)
	}
	*s = parsed
	return nil
}

// Use is an attempt to use a grant.
type Use struct {
	Now      time.Time
	Node     identity.Key
	Holder   identity.Key // has proved this key
	Grantors []identity.Key
}

// Verify returns why a node may not serve the holder by this grant, or nil. The node checks revocation and usage.
func (s Signed) Verify(u Use) *Refusal {
	if !slices.Contains(u.Grantors, s.Grantor) {
		return &Refusal{Reason: ReasonGrantor, Detail: s.Grantor.String()}
	}
	if !s.signed() {
		return &Refusal{Reason: ReasonForged}
	}
	g := s.Grant
	switch {
	case g.Holder != u.Holder:
		return &Refusal{Reason: ReasonHolder, Detail: g.Holder.String()}
	case len(g.Nodes) > 0 && !slices.Contains(g.Nodes, u.Node):
		return &Refusal{Reason: ReasonNode}
	case u.Now.Add(leeway).Before(g.From):
		return &Refusal{Reason: ReasonEarly, Detail: g.From.Format(time.RFC3339)}
	case !u.Now.Before(g.Until):
		return &Refusal{Reason: ReasonExpired, Detail: g.Until.Format(time.RFC3339)}
	}
	return nil
}

func (s Signed) signed() bool {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(s.text, grantPrefix))
	return err == nil && len(raw) > keySize+signature &&
		s.Grantor.Verify(grantPurpose, raw[keySize+signature:], raw[keySize:keySize+signature])
}
