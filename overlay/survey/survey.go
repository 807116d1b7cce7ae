// Package survey measures which way packets take to a host: the routers on it, and the round trip. It runs scamper,
// whose probes look like one TCP connection to routers that spread connections over several links, so that all of them
// take one way (Augustin et al., "Avoiding traceroute anomalies with Paris traceroute", 2006), and whose pings are of that
// connection too (Pelsser et al., "From Paris to Tokyo: on the suitability of ping to measure latency", 2013).
//
// A [Half] is one half of a way through an overlay node: from here to the node, or from the node to a destination, which
// the node measures. [Paths] joins halves to what package diversity chooses from.
//
// Do not take a survey for the way of a session: that is another connection, and routes change. What a node says of its
// half is its word alone.
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

// Hop is one router on the way, or the destination.
type Hop struct {
	TTL int `json:"ttl"`
	// Addr is who answered; zero where nobody did.
	Addr netip.Addr `json:"addr,omitzero"`
	// RTT is the round trip to it in milliseconds, 0 where nobody answered.
	RTT float64 `json:"rtt_ms,omitempty"`
}

// Half is what was found of the way from one host to another.
type Half struct {
	// Uplink is the name of the way out that was taken, empty for that of the system's routes.
	Uplink string         `json:"uplink,omitempty"`
	From   netip.Addr     `json:"from,omitzero"`
	To     netip.AddrPort `json:"to"`
	At     time.Time      `json:"at"`
	// Method is how it was traced, as scamper calls it: tcp-ack, tcp, icmp-echo-paris or udp-paris.
	Method string `json:"method"`
	// Hops are in the order of their TTLs, up to the last that answered.
	Hops []Hop `json:"hops"`
	// Reached reports whether the last of them is the destination; if not, the rest of the way is unknown.
	Reached bool `json:"reached"`
	// RTT is the least round trip of some pings in milliseconds, 0 where none was answered, and Ping how it was measured.
	RTT  float64 `json:"rtt_ms,omitempty"`
	Ping string  `json:"ping,omitempty"`
}

// Age is how long ago it was measured. What is of tomorrow, since a clock was wrong, is as old as what is of yesterday.
func (h Half) Age(now time.Time) time.Duration { return now.Sub(h.At).Abs() }

const (
	maxHops = 255 // of IP's hop limit
	maxHalf = 64 << 10
)

// ParseHalf reads a half as JSON, as nodes send it, which may send anything.
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

// roundTrip reports whether a number of milliseconds is one, up to a minute.
func roundTrip(ms float64) bool { return !math.IsNaN(ms) && ms >= 0 && ms <= 60_000 }
