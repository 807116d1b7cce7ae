// Package survey measures the path to a host: its routers and the round trip. It runs scamper, whose probes look like one
// TCP connection, so that load-balancing routers send all of them one way (Augustin et al., "Avoiding traceroute anomalies
// with Paris traceroute", 2006). Pings are of that connection too (Pelsser et al., "From Paris to Tokyo: on the suitability
// of ping to measure latency", 2013).
//
// A [Half] is one half of a path through an overlay node: from here to the node, or from the node, which measures it, to a
// destination. [Paths] joins halves to what package diversity chooses from. A session may take another path: it is another
// connection, and routes change. A node's half is only its word.
package survey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"
)

// Hop is one router on the path, or the destination.
type Hop struct {
	TTL  int        `json:"ttl"`
	Addr netip.Addr `json:"addr,omitzero"`    // who answered; zero if nobody
	RTT  float64    `json:"rtt_ms,omitempty"` // in milliseconds, 0 without an answer
}

// Half is a measured path from one host to another.
type Half struct {
	Uplink  string         `json:"uplink,omitempty"` // name of the uplink, empty for the system's routes
	From    netip.Addr     `json:"from,omitzero"`
	To      netip.AddrPort `json:"to"`
	At      time.Time      `json:"at"`
	Method  string         `json:"method"`           // scamper's name: tcp-ack, tcp, icmp-echo-paris or udp-paris
	Hops    []Hop          `json:"hops"`             // by TTL, up to the last that answered
	Reached bool           `json:"reached"`          // the last hop is the destination; if not, the rest is unknown
	RTT     float64        `json:"rtt_ms,omitempty"` // least of some pings in milliseconds, 0 without an answer
	Ping    string         `json:"ping,omitempty"`   // how RTT was measured
}

// Age returns the time since the measurement. With a wrong clock, a time in the future counts like one in the past.
func (h Half) Age(now time.Time) time.Duration { return now.Sub(h.At).Abs() }

const (
	maxHops = 255 // of IP's hop limit
	maxHalf = 64 << 10
)

// ParseHalf reads a half in JSON from an untrusted node.
func ParseHalf(text []byte) (Half, error) {
	var h Half
	if len(text) > maxHalf {
		return Half{}, fmt.Errorf("it has more than %d bytes", maxHalf)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&h); err != nil {
		return Half{}, err
	}
	if decoder.More() {
		return Half{}, errors.New("something follows it")
	}
	return h, h.check()
}

// check refuses what no measurement gives.
func (h Half) check() error {
	switch {
	case !h.To.Addr().IsValid():
		return errors.New("it does not say where to")
	case len(h.Hops) > maxHops:
		return fmt.Errorf("it has %d hops", len(h.Hops))
	case len(h.Uplink) > 64 || len(h.Method) > 32 || len(h.Ping) > 32:
		return errors.New("its words are too long")
	case !roundTrip(h.RTT):
		return fmt.Errorf("%v ms is no round trip", h.RTT)
	}
	last := 0
	for _, hop := range h.Hops {
		if hop.TTL <= last || hop.TTL > maxHops || !roundTrip(hop.RTT) {
			return fmt.Errorf("its hop %d has TTL %d and %v ms", last+1, hop.TTL, hop.RTT)
		}
		last = hop.TTL
	}
	return nil
}

// roundTrip reports whether ms is a plausible round trip: at most a minute.
func roundTrip(ms float64) bool { return !math.IsNaN(ms) && ms >= 0 && ms <= 60_000 }
