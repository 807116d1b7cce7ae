package link

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"time"

	"heddle/disguise/block"
)

const (
	flowSize     = 2
	maxDatagram  = block.MaxData - flowSize
	datagramLife = 200 * time.Millisecond
	queueBytes   = 256 << 10
)

// queued is a datagram that waits.
type queued struct {
	flow uint16
	p    []byte
	at   time.Time
}

// SendDatagram sends a datagram, whole or not at all. It keeps no reference to p. The oldest waiting datagrams are dropped for it
// if there are too many.
func (l *Link) SendDatagram(flow uint16, p []byte) error {
	if len(p) > maxDatagram {
		return fmt.Errorf("a datagram of %d bytes: a disguised link takes %d at most", len(p), maxDatagram)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return net.ErrClosed
	case l.over:
		return l.ended()
	}
	now := time.Now()
	for len(l.dgrams) > 0 && l.dgbytes+len(p) > queueBytes {
		l.drop(0)
	}
	l.dgrams = append(l.dgrams, queued{flow, slices.Clone(p), now})
	l.dgbytes += len(p)
	l.kick(now)
	return nil
}

// drop counts a datagram that will never go out. l.mu is held.
func (l *Link) drop(i int) {
	l.count.DatagramsDropped++
	l.unqueue(i)
}

func (l *Link) unqueue(i int) {
	l.dgbytes -= len(l.dgrams[i].p)
	l.dgrams = slices.Delete(l.dgrams, i, i+1)
}

// datagramsWaiting drops those that waited for too long, and returns the bytes of blocks that the others take. l.mu is held.
func (l *Link) datagramsWaiting(now time.Time) (bytes int) {
	for len(l.dgrams) > 0 && now.Sub(l.dgrams[0].at) > datagramLife {
		l.drop(0)
	}
	return l.dgbytes + len(l.dgrams)*(block.Overhead+flowSize)
}

// nextDatagram takes the first datagram that fits. l.mu is held.
func (c *Conn) nextDatagram(b []byte, now time.Time) (h block.Header) {
	l := c.l
	if len(l.dgrams) == 0 || !c.mayAck() {
		return h
	}
	l.datagramsWaiting(now)
	for i, d := range l.dgrams {
		if flowSize+len(d.p) > len(b) {
			continue
		}
		binary.BigEndian.PutUint16(b, d.flow)
		copy(b[flowSize:], d.p)
		l.unqueue(i)
		l.count.DatagramsOut++
		return block.Header{Function: block.Datagram, Data: flowSize + len(d.p)}
	}
	return h
}
