package survey

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
)

// result is scamper's result of one command, with the command's number.
type result struct {
	id      int
	trace   bool
	method  string
	src     netip.Addr
	hops    []Hop
	reached bool
	rtt     float64 // of a ping, in milliseconds; 0 if none was answered
}

// record is a line of scamper's JSON. Lines of other types have none of these fields.
type record struct {
	Type       string `json:"type"`
	UserID     int    `json:"userid"`
	Method     string `json:"method"`
	Src        string `json:"src"`
	Dst        string `json:"dst"`
	StopReason string `json:"stop_reason"`
	Hops       []struct {
		Addr string  `json:"addr"`
		TTL  int     `json:"probe_ttl"`
		RTT  float64 `json:"rtt"`
	} `json:"hops"`
	Responses []struct {
		From string  `json:"from"`
		RTT  float64 `json:"rtt"`
	} `json:"responses"`
}

// parse reads the output of `scamper -O json`, one object per line. Routers control little of it but addresses and times.
func parse(output []byte) ([]result, error) {
	var all []result
	number := 0
	for line := range bytes.Lines(output) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("line %d of scamper's output: %w", number, err)
		}
		if r.Type != "trace" && r.Type != "ping" {
			continue
		}
		one, err := r.result()
		if err != nil {
			return nil, fmt.Errorf("line %d of scamper's output: %w", number, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func (r record) result() (result, error) {
	out := result{id: r.UserID, trace: r.Type == "trace", method: r.Method}
	var err error
	if out.src, err = netip.ParseAddr(r.Src); err != nil {
		return out, err
	}
	dst, err := netip.ParseAddr(r.Dst)
	if err != nil {
		return out, err
	}
	if out.trace {
		out.reached = r.StopReason == "COMPLETED"
		out.hops, err = r.answered()
		// A trace to a host that is its own first hop is complete without hops.
		if n := len(out.hops); n > 0 && out.reached {
			out.hops[n-1].Addr = dst
		}
		return out, err
	}
	for _, a := range r.Responses {
		if roundTrip(a.RTT) && a.RTT > 0 && (out.rtt == 0 || a.RTT < out.rtt) {
			out.rtt = a.RTT
		}
	}
	return out, nil
}

// answered returns the hops up to the last that answered, with the first answer of each.
func (r record) answered() ([]Hop, error) {
	byTTL := map[int]Hop{}
	last := 0
	for _, h := range r.Hops {
		addr, err := netip.ParseAddr(h.Addr)
		if err != nil {
			return nil, err
		}
		if h.TTL < 1 || h.TTL > maxHops || !roundTrip(h.RTT) {
			return nil, fmt.Errorf("a hop with TTL %d and %v ms", h.TTL, h.RTT)
		}
		if _, known := byTTL[h.TTL]; !known {
			byTTL[h.TTL] = Hop{h.TTL, addr.Unmap().WithZone(""), h.RTT}
		}
		last = max(last, h.TTL)
	}
	hops := make([]Hop, last)
	for ttl := range last {
		hops[ttl] = byTTL[ttl+1]
		hops[ttl].TTL = ttl + 1
	}
	return slices.Clip(hops), nil
}
