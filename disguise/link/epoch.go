package link

import (
	"bytes"
	"crypto/mlkem"
	"encoding/binary"
	"math"
	"time"

	"heddle/disguise/block"
	"heddle/disguise/handshake"
)

const (
	forgetAfter = 60 * time.Second // after the first block of the next epoch
	// rekeysWithin is how long three rekeys of one side take at least. A side begins the third only when it forgot what was before the
	// first. Messages that wait on slow connections come closer together than they began.
	rekeysWithin = forgetAfter / 2
	rekeyHead    = 1 + 2       // id and offset of a part
	rekeyFirst   = time.Second // until an rki that nothing answers goes out again
	maxEpochs    = 3           // of one direction, that a side knows when it begins another one
	leastPart    = 16          // bytes; a block with less room carries no part, if it is not the last
	rkiSize      = 1 + 32 + mlkem.EncapsulationKeySize768
	rkrSize      = 1 + 32 + mlkem.CiphertextSize768
)

// sending is one epoch of the direction to the other side.
type sending struct {
	codec *block.Codec
	seq   uint64 // of the epoch; it does not wrap
	next  uint64 // number of the next block
	bytes uint64
}

// receiving is one epoch of the direction from the other side. The link's lock guards the window.
type receiving struct {
	codec  *block.Codec
	seq    uint64
	window block.Window
	filler bool // the keys of a hello, for blocks without content
}

// epochs are the keys of a link. The link's lock guards them.
type epochs struct {
	secrets  handshake.Secrets
	send     *sending     // nil until the link is open
	receive  []*receiving // oldest first
	next     *handshake.Secrets
	newest   uint64       // the newest epoch in which a block arrived
	forgetAt time.Time    // when the epochs before it are forgotten
	answered [2]time.Time // when this side answered the last two rekeys
}

// open sets the keys of epoch 0. A bridge has sent block 0 with its answer.
func (k *epochs) open(s handshake.Secrets, client bool) {
	k.secrets = s
	k.send = &sending{codec: block.NewCodec(s.Out)}
	in := &receiving{codec: block.NewCodec(s.In)}
	if client {
		in.window.Mark(0)
	} else {
		k.send.next = 1
	}
	k.receive = []*receiving{in}
}

func (k *epochs) oldest() *receiving {
	if len(k.receive) == 0 {
		return nil
	}
	return k.receive[0]
}

// accept makes blocks of the next epoch acceptable.
func (k *epochs) accept(s handshake.Secrets) {
	seq := k.receive[len(k.receive)-1].seq + 1
	k.receive = append(k.receive, &receiving{codec: block.NewCodec(s.In), seq: seq})
	if len(k.receive) > maxEpochs { // the other side begins them faster than it may
		k.receive = k.receive[1:]
	}
}

// begin sends in the next epoch from now on.
func (k *epochs) begin(s handshake.Secrets) {
	k.secrets, k.next = s, nil
	k.send = &sending{codec: block.NewCodec(s.Out), seq: k.send.seq + 1}
}

// sequence is a number that grows with each block of a direction. It starts at 1. Numbers of epochs that never were give others
// than all blocks have.
func (k *epochs) sequence(epoch byte, number uint32) uint64 {
	back := uint64(byte(k.send.seq) - epoch)
	if back > k.send.seq {
		return math.MaxUint64
	}
	return sequence(k.send.seq-back, uint64(number))
}

func sequence(epoch, number uint64) uint64 { return epoch<<32 + number + 1 }

// forget drops the keys of all epochs before one. Connections that began long ago may still bring blocks of an old epoch for a
// while.
func (k *epochs) forget(before uint64) {
	for len(k.receive) > 1 && k.receive[0].seq < before {
		k.receive = k.receive[1:]
	}
	k.forgetAt = time.Time{}
}

// heard notes that a block of an epoch arrived on a connection. l.mu is held.
func (k *epochs) heard(l *Link, c *Conn, e *receiving, now time.Time) {
	if e == c.from || e.filler {
		return
	}
	if c.from == nil || c.from.filler || e.seq > c.from.seq {
		c.from = e
	}
	if e.seq <= k.newest {
		return
	}
	k.newest = e.seq
	if k.next != nil { // the other side has the answer
		k.begin(*k.next)
		l.rekey = rekey{}
	}
	k.forgetAt = now.Add(forgetAfter)
	l.alarm(k.forgetAt)
}

// rekey is the state of a rekey that is not complete.
type rekey struct {
	pending *handshake.Rekey // this side began it
	message []byte           // rki or rkr, while it must go out
	sent    int              // bytes of it, without the id
	again   time.Time        // when an rki goes out again
	tries   int
	since   time.Time
	asked   []byte // the rki that the message answers
	parts   [2]parts
}

// parts collects the parts of an rki or rkr.
type parts struct {
	id   byte
	body []byte
	have int
	got  []bool
}

func (r *rekey) outstanding() bool { return r.message != nil }

// repeat sends the message again, from its beginning.
func (r *rekey) repeat() { r.sent, r.again = 0, time.Time{} }

// waiting returns how many bytes of blocks the rest of the message takes, if they are large.
func (r *rekey) waiting() int {
	if len(r.message) <= 1+r.sent {
		return 0
	}
	return block.Overhead + rekeyHead + len(r.message) - 1 - r.sent
}

// start begins a new epoch if it is time to. l.mu is held.
func (r *rekey) start(l *Link, now time.Time) {
	if r.outstanding() || r.pending != nil || l.keys.next != nil || len(l.keys.receive) >= maxEpochs {
		return
	}
	l.owing(now)
	pending, rki := handshake.StartRekey(l.keys.secrets.Epoch + 1)
	r.pending, r.message, r.sent, r.tries, r.since = pending, rki, 0, 0, now
}

// put writes the next part into b, and returns its size, or zero if b has too little room. l.mu is held.
func (r *rekey) put(l *Link, b []byte, now time.Time) (f block.Function, size int) {
	rest := r.message[1+r.sent:]
	room := len(b) - rekeyHead
	if room < min(len(rest), leastPart) {
		return 0, 0
	}
	b[0] = r.message[0]
	binary.BigEndian.PutUint16(b[1:], uint16(r.sent))
	n := copy(b[rekeyHead:], rest)
	r.sent += n
	f = block.RekeyDone
	if r.pending != nil {
		f = block.RekeyInit
		if n == len(rest) {
			r.again = now.Add(rekeyFirst << min(r.tries, maxDoubling))
			r.tries++
			l.alarm(r.again)
		}
	}
	return f, rekeyHead + n
}

// takeRekey takes a part of an rki or rkr. l.mu is held.
func (l *Link) takeRekey(f block.Function, b []byte, now time.Time) error {
	size, which := rkiSize, 0
	if f == block.RekeyDone {
		size, which = rkrSize, 1
	}
	if len(b) <= rekeyHead {
		return l.violated("an empty part of a rekey")
	}
	at, part := int(binary.BigEndian.Uint16(b[1:])), b[rekeyHead:]
	if 1+at+len(part) > size {
		return l.violated("a part behind the end of a rekey")
	}
	if b[0] != l.keys.secrets.Epoch+1 {
		return nil // late, from a rekey that is complete
	}
	p := &l.rekey.parts[which]
	if p.body == nil || p.id != b[0] {
		*p = parts{id: b[0], body: make([]byte, size), got: make([]bool, size)}
		p.body[0] = b[0]
	}
	for i, c := range part {
		if !p.got[at+i] {
			p.got[at+i] = true
			p.body[1+at+i] = c
			p.have++
		}
	}
	if p.have < size-1 {
		return nil
	}
	whole := p.body
	*p = parts{}
	if f == block.RekeyDone {
		return l.takeRekeyDone(whole)
	}
	return l.takeRekeyInit(whole, now)
}

// takeRekeyInit answers an rki. l.mu is held.
func (l *Link) takeRekeyInit(rki []byte, now time.Time) error {
	r := &l.rekey
	switch {
	case l.client && r.pending != nil:
		return nil // both began, and the client's counts
	case l.keys.next != nil && bytes.Equal(rki, r.asked):
		r.repeat()
		return nil
	case l.keys.next != nil:
		return l.violated("a second rekey before the first is complete")
	case now.Sub(l.keys.answered[0]) < rekeysWithin: // each costs this side a key exchange
		return l.violated("three rekeys within " + rekeysWithin.String())
	}
	rkr, next, err := handshake.AnswerRekey(l.keys.secrets, rki)
	if err != nil {
		return l.violated(err.Error())
	}
	*r = rekey{message: rkr, asked: rki, since: now}
	l.keys.next, l.keys.answered = &next, [2]time.Time{l.keys.answered[1], now}
	l.keys.accept(next)
	return nil
}

// takeRekeyDone ends a rekey that this side began. l.mu is held.
func (l *Link) takeRekeyDone(rkr []byte) error {
	if l.rekey.pending == nil {
		return nil
	}
	next, err := l.rekey.pending.Finish(l.keys.secrets, rkr)
	if err != nil {
		return l.violated(err.Error())
	}
	l.rekey = rekey{}
	l.keys.accept(next)
	l.keys.begin(next)
	l.ack.due = true // a block of the new epoch, which makes the other side send in it
	return nil
}
