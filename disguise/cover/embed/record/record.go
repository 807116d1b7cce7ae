// Package record makes traces for the cover embed from captures.
//
// It finds the headers of RTP, and those of other protocols as far as they are constant bytes and numbers that grow. It does
// not dissect protocols: check with a tool that does, such as nDPI or tshark, what it makes of a replay.
package record

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"heddle/disguise/cover/embed"
	"heddle/observe"
)

// Options choose what becomes a trace.
type Options struct {
	Least int           // packets with data in each direction; conversations with fewer are skipped
	Most  time.Duration // the rest of longer conversations is left out
	Loop  bool          // the traces loop
}

// Head is how much of each payload [Traces] needs; see [observe.Options].
const Head = embed.MaxOpening

// Skipped is a conversation that gives no trace.
type Skipped struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Traces makes a trace of each conversation in a capture. The names begin with name.
func Traces(c *observe.Capture, name string, o Options) (traces []embed.Trace, skipped []Skipped) {
	packets := make([][]observe.Packet, len(c.Flows))
	for _, p := range c.Packets {
		if p.Payload > 0 && !p.Repeated {
			packets[p.Flow] = append(packets[p.Flow], p)
		}
	}
	for i, flow := range c.Flows {
		what := fmt.Sprintf("%s, %s %v to %v", name, flow.Transport, flow.Client, flow.Server)
		t, err := trace(flow, packets[i], o)
		if err == nil {
			t.Name = fmt.Sprintf("%s-%d", name, len(traces)+1)
			err = t.Check()
		}
		if err != nil {
			skipped = append(skipped, Skipped{what, err.Error()})
			continue
		}
		traces = append(traces, t)
	}
	if len(traces) == 1 {
		traces[0].Name = name
	}
	return traces, skipped
}

func trace(flow observe.Flow, packets []observe.Packet, o Options) (t embed.Trace, err error) {
	if flow.Transport != "udp" && flow.Transport != "tcp" {
		return t, fmt.Errorf("it is neither UDP nor TCP")
	}
	t = embed.Trace{Protocol: cmp.Or(flow.Protocol, "unknown"), Datagrams: flow.Transport == "udp", Port: flow.Server.Port(), Loop: o.Loop}
	var heads [2][][]byte // up, down
	for _, p := range packets {
		at := p.Time.Sub(packets[0].Time).Round(time.Microsecond)
		if at > o.Most {
			break
		}
		t.Packets = append(t.Packets, embed.Packet{At: at, Size: p.Payload, Down: !p.Out})
		side := 0
		if !p.Out {
			side = 1
		}
		heads[side] = append(heads[side], p.Head)
	}
	if up, down := len(heads[0]), len(heads[1]); min(up, down) < o.Least {
		return t, fmt.Errorf("%d packets up and %d down carry data, less than %d", up, down, o.Least)
	}
	if !t.Datagrams {
		t.Up, t.Down = opening(heads[0][0]), opening(heads[1][0])
		if up, down := rtmp(heads[0][0]), rtmp(heads[1][0]); up.Size() == openingOfRTMP && down != nil {
			t.Up, t.Down, t.Protocol = up, down, "RTMP"
		}
		return t, nil
	}
	for i, header := range []*embed.Header{&t.Up, &t.Down} {
		if h, protocol := rtp(heads[i]); h != nil {
			*header, t.Protocol = h, protocol
		} else {
			*header = detect(heads[i])
			t.Whole = t.Whole || slices.ContainsFunc(*header, func(f embed.Field) bool { return f.Kind == embed.Counter || f.Kind == embed.Steps })
		}
	}
	return t, nil
}

// leastOpening is the least length of a line in bytes. One random stream of 60,000 begins like such a line.
const leastOpening = 6

// opening takes the line of text with which many protocols begin a stream.
func opening(head []byte) embed.Header {
	end := bytes.IndexByte(head, '\n')
	if end+1 < leastOpening || bytes.ContainsFunc(head[:end], func(r rune) bool { return (r < ' ' || r > '~') && r != '\r' }) {
		return nil
	}
	return embed.Header{{Kind: embed.Literal, Bytes: end + 1, Value: bytes.Clone(head[:end+1])}}
}

const openingOfRTMP = 9 // bytes

// rtmp takes the version, the time and the version of the program with which each side of RTMP begins, as far as the first
// packet has them. 1,528 random bytes follow them (Adobe's specification 1.0, section 5.2).
func rtmp(head []byte) embed.Header {
	if len(head) == 0 || head[0] != 3 {
		return nil
	}
	n := min(len(head), openingOfRTMP)
	return embed.Header{{Kind: embed.Literal, Bytes: n, Value: bytes.Clone(head[:n])}}
}
