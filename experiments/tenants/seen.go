package tenants

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The kinds of features that an observer reads of a connection. The name of a feature begins with its kind.
const (
	packetsKind   = "packets"   // headers of IP and TCP
	handshakeKind = "handshake" // sizes of the server's first messages of TLS
	answerKind    = "answer"    // sizes of what follows
	endKind       = "end"       // how the connection ends
	timingKind    = "timing"    // in milliseconds
)

// Kinds are all of them.
func Kinds() []string { return []string{packetsKind, handshakeKind, answerKind, endKind, timingKind} }

// Seen is what an observer reads of a connection, by name: numbers and words. The name begins with its kind.
type Seen map[string]any

// some are how many records and segments of a part are seen one by one.
const some = 8

// seen reads a connection. It fails if the capture lacks the handshake or the answer.
func (f *flow) seen() (Seen, error) {
	s := Seen{}
	syn, hello := f.find(0, func(p packet) bool { return p.tcp.SYN && !p.server }), f.find(0, func(p packet) bool { return !p.server && len(p.tcp.Payload) > 0 })
	synAck := f.find(0, func(p packet) bool { return p.tcp.SYN && p.server })
	first := f.find(hello, func(p packet) bool { return p.server && len(p.tcp.Payload) > 0 })
	request := f.find(first, func(p packet) bool { return !p.server && len(p.tcp.Payload) > 0 })
	answer := f.find(request, func(p packet) bool { return p.server && len(p.tcp.Payload) > 0 })
	if slices.Contains([]int{syn, synAck, hello, first, request, answer}, len(f.packets)) {
		return nil, fmt.Errorf("the connection of %v is not whole", f.client)
	}
	f.headers(s, synAck, first)
	flight := len(stream(f.packets[:request], true))
	f.messages(s, handshakeKind, f.packets[:request], 0, flight)
	f.messages(s, answerKind, f.packets[request:], flight, len(stream(f.packets, true)))
	f.ending(s)
	last := first // of the hello's packets
	for i := hello; i < first; i++ {
		if !f.packets[i].server && len(f.packets[i].tcp.Payload) > 0 {
			last = i
		}
	}
	ms := func(name string, from, to int) {
		s[timingKind+": "+name] = -1.0
		if to < len(f.packets) {
			s[timingKind+": "+name] = float64(f.packets[to].at.Sub(f.packets[from].at)) / float64(time.Millisecond)
		}
	}
	ms("SYN-ACK", syn, synAck)
	ms("acknowledgement of the hello", last, f.find(hello, func(p packet) bool { return p.server }))
	ms("first message", last, first)
	ms("handshake", first, request-1)
	ms("first of the answer", request, answer)
	end := answer
	for i := answer; i < len(f.packets); i++ {
		if f.packets[i].server && len(f.packets[i].tcp.Payload) > 0 {
			end = i
		}
	}
	ms("answer", answer, end)
	ms("FIN", end, f.find(end, func(p packet) bool { return p.server && p.tcp.FIN }))
	return s, nil
}

// find returns the first packet from a place on for which is says so, or the number of packets.
func (f *flow) find(from int, is func(packet) bool) int {
	for i := from; i < len(f.packets); i++ {
		if is(f.packets[i]) {
			return i
		}
	}
	return len(f.packets)
}

// headers reads what IP and TCP say.
func (f *flow) headers(s Seen, synAck, first int) {
	add := func(name string, value any) { s[packetsKind+": "+name] = value }
	a, d := f.packets[synAck], f.packets[first]
	add("TTL of the SYN-ACK", int(a.ttl))
	add("options of the SYN-ACK", a.layout)
	add("window of the SYN-ACK", int(a.tcp.Window))
	add("MSS", a.mss)
	add("window scale", a.scale)
	add("echo of the first message", word(d.stamped, d.echo == 0, "none", "zero", "the client's"))
	words := map[string]map[string]bool{}
	note := func(name, value string) {
		if words[name] == nil {
			words[name] = map[string]bool{}
		}
		words[name][value] = true
	}
	scale, largest, under, acks := max(a.scale, 0), 0, 0, 0
	var sent, acked uint32
	windows := []int{}
	for i, p := range f.packets {
		if !p.server {
			if p.tcp.ACK {
				acked = p.tcp.Ack
			}
			continue
		}
		note("TTLs", fmt.Sprint(p.ttl))
		note("types of service", fmt.Sprint(p.service))
		note("congestion", fmt.Sprint(p.tcp.ECE, p.tcp.CWR))
		note("fragments", fmt.Sprint(p.fragments))
		if i <= synAck {
			add("identifier of the SYN-ACK", word(!p.v6, p.id == 0, "label", "zero", "other"))
			sent = p.tcp.Seq + 1
			continue
		}
		note("identifiers", word(true, p.id == 0, "", "zero", "other"))
		note("options", strings.ReplaceAll(p.layout, "nop nop sack ", ""))
		if !p.tcp.RST {
			windows = append(windows, int(p.tcp.Window)<<scale)
		}
		if n := len(p.tcp.Payload); n > 0 {
			largest = max(largest, n)
			if end := p.tcp.Seq + uint32(n); int32(end-sent) > 0 {
				sent = end
			}
			under = max(under, int(int32(sent-acked)))
		} else {
			acks++
		}
	}
	for name, values := range words {
		add(name, strings.Join(slices.Sorted(maps.Keys(values)), ", "))
	}
	add("largest payload", largest)
	add("most unacknowledged bytes", under)
	add("packets without payload", acks)
	add("first window", windows[0])
	add("largest window", slices.Max(windows))
	add("smallest window", slices.Min(windows))
	f.clock(s, synAck, first)
}

// clock compares the timestamps of the server with the time that passes.
func (f *flow) clock(s Seen, synAck, first int) {
	a, last := f.packets[synAck], f.packets[synAck]
	drift := func(p packet) float64 {
		return float64(int32(p.value-a.value)) - float64(p.at.Sub(a.at))/float64(time.Millisecond)
	}
	for _, p := range f.packets {
		if p.server && p.stamped {
			last = p
		}
	}
	s[packetsKind+": clock's step at the first message"], s[packetsKind+": clock's step at the last packet"] = 0.0, 0.0
	if a.stamped {
		s[packetsKind+": clock's step at the first message"], s[packetsKind+": clock's step at the last packet"] = drift(f.packets[first]), drift(last)
	}
}

// word chooses one of three.
func word(there, is bool, none, yes, no string) string {
	switch {
	case !there:
		return none
	case is:
		return yes
	}
	return no
}

// messages reads the sizes of the server's records of TLS in a part of what it sent, and of the segments that carried them.
func (f *flow) messages(s Seen, kind string, packets []packet, from, to int) {
	add := func(name string, value int) { s[kind+": "+name] = value }
	add("bytes", to-from)
	records := recordSizes(stream(f.packets, true)[:to], from)
	add("records", len(records))
	var segments []int
	for _, p := range packets {
		if n := len(p.tcp.Payload); n > 0 && p.server {
			segments = append(segments, n)
		}
	}
	add("segments", len(segments))
	for i := range some {
		add(fmt.Sprintf("record %d", i+1), nth(records, i))
		add(fmt.Sprintf("segment %d", i+1), nth(segments, i))
		add(fmt.Sprintf("record %d from the end", i+1), nth(records, len(records)-1-i))
	}
}

func nth(sizes []int, i int) int {
	if i < 0 || i >= len(sizes) {
		return 0
	}
	return sizes[i]
}

// recordHeader is the size of the header of a record of TLS.
const recordHeader = 5

// recordSizes returns the sizes of the records that begin from a place on.
func recordSizes(stream []byte, from int) (sizes []int) {
	for at := 0; at+recordHeader <= len(stream); {
		n := int(stream[at+3])<<8 | int(stream[at+4])
		if at >= from {
			sizes = append(sizes, n)
		}
		at += recordHeader + n
	}
	return sizes
}

// ending reads how the connection ends.
func (f *flow) ending(s Seen) {
	fin := f.find(0, func(p packet) bool { return p.tcp.FIN || p.tcp.RST })
	by, resets, after := "nobody", 0, 0
	if fin < len(f.packets) {
		by = word(true, f.packets[fin].server, "", "the server", "the client")
		for _, p := range f.packets[fin:] {
			if p.server {
				after++
			}
		}
	}
	for _, p := range f.packets {
		if p.server && p.tcp.RST {
			resets++
		}
	}
	s[endKind+": begun by"], s[endKind+": resets"], s[endKind+": packets of the server"] = by, resets, after
	s[endKind+": FIN of the server"] = word(true, f.find(0, func(p packet) bool { return p.server && p.tcp.FIN }) < len(f.packets), "", "yes", "no")
}
