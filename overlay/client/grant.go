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

// What a grant may be for.
const (
	ModeForward = "forward" // TCP connections and UDP flows that the node makes for the holder
	ModeNAT     = "nat"     // leases of address translation in the node's kernel
	ModeSurvey  = "survey"  // measurements from the node towards a destination
)

// Modes are those that there are.
func Modes() []string { return []string{ModeForward, ModeNAT, ModeSurvey} }

const (
	grantPurpose = "heddle grant 1"
	grantPrefix  = "heddle-grant:"
	// MaxGrant is how long the text of a grant is at most, in bytes.
	MaxGrant  = 4096
	keySize   = 32
	signature = 64
	// leeway is how much earlier than its beginning a grant is taken: clocks differ.
	leeway = time.Minute
)

// Grant says who may use which nodes, until when, how much and to reach what. It is bound to its holder's key, which the
// holder proves at each connection: who else has its text can do nothing with it.
type Grant struct {
	// ID names the grant, where it is revoked and where its bytes are counted: 32 hexadecimal digits. [Issue] draws it.
	ID     string       `json:"id"`
	Holder identity.Key `json:"holder"`
	// Nodes are those that the grant is for; empty for every node that trusts the grantor.
	Nodes []identity.Key `json:"nodes,omitempty"`
	From  time.Time      `json:"from"`
	Until time.Time      `json:"until"`
	// Bytes is how many the holder may send and receive by one node in all, or 0 for as many as there are.
	Bytes int64 `json:"bytes,omitempty"`
	// To are the destinations, as [ParseDestination] reads them; empty for all public addresses.
	To    []string `json:"to,omitempty"`
	Modes []string `json:"modes"`
}

// Signed is a grant with its grantor's signature, which [Signed.Verify] checks.
type Signed struct {
	Grant   Grant
	Grantor identity.Key
	text    string
}

// Issue signs a grant. It draws an ID where there is none, and takes times to the second.
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

// check refuses what no node could make sense of.
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

// ParseGrant reads the text of a grant: heddle-grant: and, in base64url, the grantor's key, its signature and the grant
// as JSON in the one form that [Issue] writes. A key that this version does not know is an error: it may be a limit.
// The signature is not checked here.
func ParseGrant(text string) (Signed, error) {
	rest, ok := strings.CutPrefix(text, grantPrefix)
	switch {
	case !ok:
		return Signed{}, errors.New(grantPrefix + " is not its beginning")
	case len(text) > MaxGrant:
		return Signed{}, fmt.Errorf("it has %d bytes, more than %d", len(text), MaxGrant)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(raw) <= keySize+signature || strings.ContainsAny(rest, "\r\n") { // which base64 passes over
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

// String gives the text of the grant, one line.
func (s Signed) String() string { return s.text }

// IsZero reports whether there is no grant.
func (s Signed) IsZero() bool { return s.text == "" }

// MarshalText gives what String does.
func (s Signed) MarshalText() ([]byte, error) { return []byte(s.text), nil }

// UnmarshalText reads the text of a grant.
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

// Use is an attempt to use a grant: by whom, where and when.
type Use struct {
	Now      time.Time
	Node     identity.Key
	Holder   identity.Key // who proved this key
	Grantors []identity.Key
}

// Verify says why a node may not serve the holder by this grant, nil where it may. Whether the grant is
// revoked or used up, the node knows.
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
