package clienthello

// mostHellos is how many connections' ClientHellos are put together at once in one flow.
const mostHellos = 4

// QUIC puts together the ClientHellos of the QUIC connections of one flow. A flow may carry several, one after another
// (after a Retry, or another version) or at once (a client with one socket). The zero value is ready.
type QUIC struct {
	reading []*hello // the latest last
}

// hello is one ClientHello. Its CRYPTO frames may lie in several packets and datagrams, in any order.
type hello struct {
	version *quicVersion
	keys    *initialKeys
	stream  Prefix
	done    bool
}

// Read takes a datagram and returns the hellos that it completes, as far as [Parse] could parse them.
func (h *QUIC) Read(datagram []byte) []Hello {
	var whole []Hello
	for _, p := range initialPackets(datagram) {
		in, body := h.open(p)
		if body == nil || in.done {
			continue // the server's, or damaged; or nothing new
		}
		cryptoFrames(body, func(offset uint64, data []byte) { in.stream.Insert(offset, data) })
		if said, err := Parse(in.stream.Bytes()); err != ErrIncomplete {
			in.stream, in.done = Prefix{}, true // the keys stay: they tell that what follows belongs to it
			whole = append(whole, said)
		}
	}
	return whole
}

// open removes the protection of a client's packet, and gives the hello that it belongs to. A client's first packets
// carry the connection ID that its keys are made of; later ones do not.
func (h *QUIC) open(p initialPacket) (*hello, []byte) {
	for _, in := range h.reading {
		if in.version == p.version {
			if body := in.keys.open(p.whole, p.number); body != nil {
				return in, body
			}
		}
	}
	keys, err := p.version.deriveInitial(p.destination)
	if err != nil {
		return nil, nil
	}
	body := keys.open(p.whole, p.number)
	if body == nil {
		return nil, nil
	}
	if len(h.reading) == mostHellos {
		h.reading = h.reading[1:]
	}
	in := &hello{version: p.version, keys: keys}
	h.reading = append(h.reading, in)
	return in, body
}
