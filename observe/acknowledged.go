package observe

import "time"

// unacknowledged are the TCP segments of one side whose acknowledgement has not been seen, in order of their sequence numbers. They are no
// more than the packets that a capture holds anyway.
type unacknowledged []awaited

type awaited struct {
	end    uint32 // sequence number behind the segment
	packet int    // index in the capture's Packets
}

// add takes a packet. It must not be a repetition: the acknowledgement of one tells nothing, because it may be that of the first.
func (u *unacknowledged) add(p decoded, packet int) {
	end := p.sequence + uint32(p.payloadSize)
	if p.syn {
		*u = nil // another connection between the same ports, or a SYN that was lost
		end++
	}
	if end != p.sequence {
		*u = append(*u, awaited{end, packet})
	}
}

// acknowledge sets Acknowledged of the packets that the other side has acknowledged up to a sequence number.
func (u *unacknowledged) acknowledge(sequence uint32, at time.Time, packets []Packet) {
	done := 0
	for ; done < len(*u) && int32((*u)[done].end-sequence) <= 0; done++ {
		p := &packets[(*u)[done].packet]
		p.Acknowledged = max(at.Sub(p.Time), 1) // clocks of two threads may differ
	}
	*u = (*u)[done:]
}
