package client

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"heddle/internal/text"
)

// Reason is why a node refuses. It is sent as a word.
type Reason string

// The reasons.
const (
	ReasonMissing     Reason = "grant-missing"
	ReasonMalformed   Reason = "grant-malformed"
	ReasonGrantor     Reason = "grantor-unknown"
	ReasonForged      Reason = "grant-forged"
	ReasonHolder      Reason = "another-holder"
	ReasonNode        Reason = "another-node"
	ReasonEarly       Reason = "not-yet-valid"
	ReasonExpired     Reason = "expired"
	ReasonRevoked     Reason = "revoked"
	ReasonUsedUp      Reason = "bytes-used-up"
	ReasonMode        Reason = "mode-not-granted"
	ReasonNoMode      Reason = "mode-not-served"
	ReasonDestination Reason = "destination-not-allowed"
	ReasonName        Reason = "name-not-found"
	ReasonUnreachable Reason = "destination-unreachable"
	ReasonSilent      Reason = "destination-silent"
	ReasonBusy        Reason = "too-many"
	ReasonRequest     Reason = "request-malformed"
	ReasonLease       Reason = "lease-unknown"
	ReasonFailed      Reason = "failed"
)

// reasonTexts has each reason in words, and what to do about it.
var reasonTexts = map[Reason]struct{ why, hint string }{
	ReasonMissing:     {"it serves only holders of a grant, and none was shown", "ask its owner for a grant: `heddle node key` prints the key to send"},
	ReasonMalformed:   {"it cannot read the grant", "ask its owner for a new pass; or one of both heddles is too old"},
	ReasonGrantor:     {"it does not trust who signed the grant", "ask the node's owner to run it with --grantor and the key of whoever signs"},
	ReasonForged:      {"the grant's signature is wrong", "ask its owner for a new pass"},
	ReasonHolder:      {"the grant is for another device's key", "a grant works only on the device that it was made for: send its owner what `heddle node key` prints here"},
	ReasonNode:        {"the grant is for other nodes", "ask for a grant that names this node, or use the nodes that it names"},
	ReasonEarly:       {"the grant is not valid yet", "wait, or ask for another"},
	ReasonExpired:     {"the grant has ended", "ask its owner for a new one"},
	ReasonRevoked:     {"the grant was revoked", "ask its owner why"},
	ReasonUsedUp:      {"the grant's bytes are used up", "ask its owner for a new one"},
	ReasonMode:        {"the grant is not for this", "ask its owner for a grant with that --mode"},
	ReasonNoMode:      {"the node does not offer this", "use another node, or ask its owner for that --mode"},
	ReasonDestination: {"the grant does not lead there", "a private, local or otherwise special address must stand in the grant; ask its owner for a grant with that --to"},
	ReasonName:        {"it cannot find the name", "is it spelled right?"},
	ReasonUnreachable: {"it cannot reach the destination", "does the server run, and does it listen on that port?"},
	ReasonSilent:      {"the destination does not answer it", "does the server run, and does a firewall keep the node out?"},
	ReasonBusy:        {"it has enough of us, or of everybody", "wait, or ask its owner for a higher --max-flows"},
	ReasonRequest:     {"it cannot read the request", "one of both heddles may be too old"},
	ReasonLease:       {"it knows of no such lease of ours", "the lease ended: ask for a new one"},
	ReasonFailed:      {"it failed", "its log says more"},
}

// Reasons lists all reasons in alphabetical order.
func Reasons() []Reason { return slices.Sorted(maps.Keys(reasonTexts)) }

// Refusal is a node's refusal and its reason.
type Refusal struct {
	Reason Reason
	Detail string
	Skew   time.Duration // how far the node's clock is ahead of this device's; 0 if unknown or at the node
	At     time.Time     // when the node refused, by the clock that decided; only at the node
}

func (r *Refusal) Error() string {
	text := reasonTexts[r.Reason].why
	if text == "" {
		text = "it refuses: " + string(r.Reason)
	}
	if r.Detail != "" {
		text += " (" + r.Detail + ")"
	}
	if r.clocks() {
		text += fmt.Sprintf("; the node's clock is %v %s this device's", r.Skew.Abs().Round(time.Second), map[bool]string{true: "ahead of", false: "behind"}[r.Skew > 0])
	}
	return text
}

// clocks reports whether a wrong clock may be the cause.
func (r *Refusal) clocks() bool {
	return (r.Reason == ReasonEarly || r.Reason == ReasonExpired) && r.Skew.Abs() > leeway
}

// HintText says what to do.
func (r *Refusal) HintText() string {
	if r.clocks() {
		return "one of both clocks is wrong: `timedatectl` shows whether this device's is kept right; if it is, tell the node's owner"
	}
	return reasonTexts[r.Reason].hint
}

// refusedHeader carries a Reason and, after a space, its detail.
const refusedHeader = "Heddle-Refused"

// Status returns the HTTP status of the refusal.
func (r *Refusal) Status() int {
	switch r.Reason {
	case ReasonMissing, ReasonMalformed, ReasonGrantor, ReasonForged, ReasonHolder, ReasonNode:
		return http.StatusProxyAuthRequired
	case ReasonBusy:
		return http.StatusTooManyRequests
	case ReasonName, ReasonUnreachable:
		return http.StatusBadGateway
	case ReasonSilent:
		return http.StatusGatewayTimeout
	case ReasonRequest:
		return http.StatusBadRequest
	case ReasonLease:
		return http.StatusNotFound
	case ReasonNoMode:
		return http.StatusNotImplemented
	case ReasonFailed:
		return http.StatusInternalServerError
	}
	return http.StatusForbidden
}

// SetHeader puts the refusal into an answer.
func (r *Refusal) SetHeader(h http.Header) {
	value := string(r.Reason)
	if r.Detail != "" {
		value += " " + r.Detail
	}
	h.Set(refusedHeader, value)
	if !r.At.IsZero() {
		h.Set("Date", r.At.UTC().Format(http.TimeFormat))
	}
}

const longestDetail = 200

// refusalOf reads the refusal from an answer. now is this device's time.
func refusalOf(status int, h http.Header, now time.Time) *Refusal {
	reason, detail, _ := strings.Cut(h.Get(refusedHeader), " ")
	r := &Refusal{Reason: Reason(spoken(reason)), Detail: spoken(detail)}
	if _, known := reasonTexts[r.Reason]; !known {
		r = &Refusal{Reason: ReasonFailed, Detail: fmt.Sprintf("HTTP status %d", status)}
	}
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		r.Skew = at.Sub(now)
	}
	return r
}

// spoken makes a node's words printable.
func spoken(words string) string { return text.Printable(words[:min(len(words), longestDetail)]) }
