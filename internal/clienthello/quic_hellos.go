package clienthello

const mostHellos = 4 // per flow, at the same time

// QUIC reassembles the ClientHellos of the QUIC connections of one flow: successive ones (after a Retry or a version
// change), or concurrent ones of a client with one socket. The zero value is ready.
type QUIC struct {
	reading []*hello // the latest last
}

// hello is one ClientHello. Its CRYPTO frames arrive in several packets and datagrams, in any order.
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
			continue // from the server or damaged, or nothing new
		}
		cryptoFrames(body, func(offset uint64, data []byte) { in.stream.Insert(offset, data) })
		if said, err := Parse(in.stream.Bytes()); err != ErrIncomplete {
			in.stream, in.done = Prefix{}, true // the keys stay, to recognise later packets of this connection
			whole = append(whole, said)
		}
	}
	return whole
}

// open decrypts a client's packet and returns the hello that it belongs to. The keys derive from the connection ID of a
// client's first packets; later packets do not carry it.
func (h *QUIC) open(p Packet) (*hello, []byte) {
	for _, in := range h.reading {
		if in.version == p.version {
			if body := in.keys.open(p.whole, p.number); body != nil {
				return in, body
			}
		}
	}
	keys, err := p.version.deriveInitial(p.Destination)
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
