package handshake

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	"time"

	"heddle/disguise/block"
)

// Pending is a hello that has no answer yet.
type Pending struct {
	to    PublicKey
	own   *ephemeral
	es    []byte
	keys  block.Keys
	bytes []byte

	told time.Time // by the bridge's clock, once the answer arrived
}

// Start makes the hello of a new link. Padding has at most [MaxPadding] bytes; see [PublicKey.Padding].
func Start(to PublicKey, h Hello, padding int) (*Pending, error) {
	return start(rand.Reader, to, h, padding)
}

func start(random io.Reader, to PublicKey, h Hello, padding int) (*Pending, error) {
	data, err := h.newClient()
	if err != nil {
		return nil, err
	}
	p, err := begin(random, to)
	if err != nil {
		return nil, err
	}
	p.bytes, err = seal(p.own.public, p.keys, block.NewClient, data, padding)
	return p, err
}

// begin draws the keys of one hello.
func begin(random io.Reader, to PublicKey) (*Pending, error) {
	own, err := newEphemeral(random)
	if err != nil {
		return nil, err
	}
	bridge, err := to.public()
	if err != nil {
		return nil, err
	}
	es, err := own.private.ECDH(bridge)
	if err != nil {
		return nil, err // a key of low order, which no bridge has
	}
	return &Pending{to: to, own: own, es: es, keys: helloKeys(es, to, own.public)}, nil
}

// Bytes returns what to send first.
func (p *Pending) Bytes() []byte { return p.bytes }

// Keys returns the keys for blocks that the client must send before the answer. Their numbers start at 1.
func (p *Pending) Keys() block.Keys { return p.keys }

// Finish reads the answer at the start of b, which it does not change, and returns its length, the link that the bridge opened,
// and its keys. With [ErrShort] n is how many bytes b must have before the next call. The bridge sent block 0 of its direction
// with the answer.
func (p *Pending) Finish(b []byte) (n int, link uint32, s Secrets, err error) {
	if len(b) < leastHello {
		return leastHello, 0, Secrets{}, ErrShort
	}
	theirs := Representative(b[:reprSize])
	point, err := theirs.point()
	if err != nil {
		return 0, 0, Secrets{}, ErrAnswer
	}
	ee, err := p.own.private.ECDH(point)
	if err != nil {
		return 0, 0, Secrets{}, ErrAnswer // a point of low order would make the key public
	}
	s = linkSecrets(p.es, ee, p.to, p.own.public, theirs, true)
	codec := block.NewCodec(s.In)
	h, ok := codec.Header(b[reprSize:])
	if !ok || h.Number != 0 || h.Function != block.NewServer || h.Data != nsSize || h.Padding > MaxPadding {
		return 0, 0, Secrets{}, ErrAnswer
	}
	n = reprSize + h.Size()
	if len(b) < n {
		return n, 0, Secrets{}, ErrShort
	}
	data, err := codec.Open(append([]byte(nil), b[reprSize:n]...), h)
	if err != nil {
		return 0, 0, Secrets{}, ErrAnswer
	}
	p.told = time.Unix(int64(binary.BigEndian.Uint32(data[4:])), 0)
	return n, binary.BigEndian.Uint32(data), s, nil
}

// BridgeTime returns what the bridge's clock showed when it answered. It is zero before [Pending.Finish] read the answer.
func (p *Pending) BridgeTime() time.Time { return p.told }

// Join makes what the client sends first on a further connection of a link. Blocks of the link follow at once.
func (s Secrets) Join(to PublicKey, link uint32, cover []byte, now time.Time, padding int) ([]byte, error) {
	return s.joinWith(rand.Reader, to, link, cover, now, padding)
}

func (s Secrets) joinWith(random io.Reader, to PublicKey, link uint32, cover []byte, now time.Time, padding int) ([]byte, error) {
	p, err := begin(random, to)
	if err != nil {
		return nil, err
	}
	data, err := Hello{Time: now, Cover: cover, Link: link}.reconnect(s.proof(p.own.public))
	if err != nil {
		return nil, err
	}
	return seal(p.own.public, p.keys, block.Reconnect, data, padding)
}
