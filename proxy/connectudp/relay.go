package connectudp

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
	"heddle/path/masque"
)

const (
	largest   = 2048 // bytes of the read buffer; no datagram this large fits a QUIC packet
	flowQueue = 256  // datagrams from the client that wait for the socket
)

// relay carries the datagrams of one request.
type relay struct {
	proxy  *Proxy
	stream *http3.Stream
	exit   *exit
	queue  chan []byte // HTTP datagrams for the target
	back   chan answer // for the client
	order  bool        // the client asked for sequence numbers
	let    Admission
	room   int          // bytes of an HTTP datagram, as last seen; used by exit.read only
	buffer []byte       // used by sendDown only
	active atomic.Int64 // time of the last datagram, in Unix nanoseconds
	ctx    context.Context
	end    context.CancelCauseFunc
}

// answer is a datagram from the target and its number in the exit's sequence, 0 if it has none.
type answer struct {
	payload []byte
	place   uint64
}

// Why a relay ended.
var (
	errIdle     = errors.New("idle")
	errClient   = errors.New("the client ended it")
	errTarget   = errors.New("the target cannot be reached")
	errProtocol = errors.New("the client breaks the protocol")
	errSpent    = errors.New("the client may carry no more")
)

func newRelay(p *Proxy, stream *http3.Stream, x *exit, order bool, let Admission) *relay {
	r := &relay{proxy: p, stream: stream, exit: x, order: order, let: let, queue: make(chan []byte, flowQueue), back: make(chan answer, flowQueue)}
	x.speaker.CompareAndSwap(nil, r)
	r.touch()
	return r
}

func (r *relay) touch() { r.active.Store(time.Now().UnixNano()) }

// run carries datagrams until one side ends, and returns why.
func (r *relay) run(ctx context.Context) error {
	r.ctx, r.end = context.WithCancelCause(ctx)
	if ends := r.let.Ends; ends != nil {
		defer context.AfterFunc(ends, func() { r.end(context.Cause(ends)) })()
	}
	var work sync.WaitGroup
	work.Go(func() { r.end(r.collect()) })
	work.Go(func() { r.end(r.up()) })
	work.Go(func() { r.end(r.down()) })
	work.Go(func() { r.end(r.capsules()) })
	idle := time.NewTimer(r.proxy.o.Idle)
	defer idle.Stop()
	for r.ctx.Err() == nil {
		select {
		case <-r.ctx.Done():
		case <-idle.C:
			quiet := time.Since(time.Unix(0, r.active.Load()))
			if quiet >= r.proxy.o.Idle {
				r.end(errIdle)
			}
			idle.Reset(max(r.proxy.o.Idle-quiet, time.Millisecond))
		}
	}
	why := context.Cause(r.ctx)
	switch {
	case errors.Is(why, errTarget):
		r.stream.CancelWrite(quic.StreamErrorCode(http3.ErrCodeConnectError))
	case errors.Is(why, errProtocol):
		r.stream.CancelWrite(quic.StreamErrorCode(http3.ErrCodeMessageError))
	default:
		r.stream.Close()
	}
	r.stream.CancelRead(quic.StreamErrorCode(http3.ErrCodeNoError))
	work.Wait()
	return why
}

// collect empties quic-go's short queue. It drops datagrams if the target's side is slower.
func (r *relay) collect() error {
	for {
		datagram, err := r.stream.ReceiveDatagram(r.ctx)
		if err != nil {
			return errClient
		}
		select {
		case r.queue <- datagram:
		default:
			r.proxy.counts.up.dropped.Add(1)
		}
	}
}

func (r *relay) up() error {
	for {
		select {
		case datagram := <-r.queue:
			if err := r.forward(datagram); err != nil {
				return err
			}
		case <-r.ctx.Done():
			return errClient
		}
	}
}

// forward sends the payload of one HTTP datagram to the target.
func (r *relay) forward(datagram []byte) error {
	payload, err := masque.ParseDatagram(datagram)
	if err != nil {
		return errProtocol
	}
	counts := &r.proxy.counts
	if payload == nil {
		counts.up.dropped.Add(1)
		return nil
	}
	if r.let.Carry != nil && !r.let.Carry(true, len(payload)) {
		return errSpent
	}
	r.exit.speaker.Store(r)
	_, err = r.exit.socket.Write(payload)
	switch {
	case err == nil:
		counts.up.add(len(payload))
		r.touch()
	case errors.Is(err, syscall.EMSGSIZE), errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.EPERM):
		counts.up.dropped.Add(1)
	default:
		return errTarget
	}
	return nil
}

// tooLarge is larger than any QUIC datagram.
var tooLarge = make([]byte, largest)

// numbers reports whether a datagram gets a sequence number: the client asked for it, and it fits. Otherwise it takes
// no number, since the client would wait for one that never arrives.
func (r *relay) numbers(payload []byte, place uint64) bool {
	if !r.order {
		return false
	}
	need := len(masque.AppendOrdered(nil, place, nil)) + len(payload)
	if need > r.room {
		var e *quic.DatagramTooLargeError
		if errors.As(r.stream.SendDatagram(tooLarge), &e) { // quic-go tells the limit only when it is exceeded
			r.room = int(e.MaxDatagramPayloadSize) - quicvarint.Len(uint64(r.stream.StreamID()/4))
		}
	}
	return need <= r.room
}

// hear queues a datagram from the target with its number, or returns false if the queue is full.
func (r *relay) hear(payload []byte, place uint64) bool {
	select {
	case r.back <- answer{bytes.Clone(payload), place}:
		return true
	default:
		return false
	}
}

// down carries datagrams to the client. It blocks while the connection is congested, and a full queue then drops datagrams.
func (r *relay) down() error {
	counts := &r.proxy.counts
	for {
		var a answer
		select {
		case a = <-r.back:
		case <-r.exit.ended:
			return errTarget
		case <-r.ctx.Done():
			return errClient
		}
		if r.let.Carry != nil && !r.let.Carry(false, len(a.payload)) {
			return errSpent
		}
		err := r.sendDown(a)
		var tooLarge *quic.DatagramTooLargeError
		switch {
		case errors.As(err, &tooLarge):
			counts.down.dropped.Add(1)
		case err != nil:
			return errClient
		default:
			counts.down.add(len(a.payload))
			r.touch()
		}
	}
}

// sendDown sends one datagram to the client, with its number if it has one that still fits.
func (r *relay) sendDown(a answer) error {
	r.buffer = r.buffer[:0]
	if a.place != 0 {
		r.buffer = masque.AppendOrdered(r.buffer, a.place, a.payload)
		var tooLarge *quic.DatagramTooLargeError
		if err := r.stream.SendDatagram(r.buffer); !errors.As(err, &tooLarge) {
			return err
		}
		r.buffer = r.buffer[:0]
	}
	r.buffer = masque.AppendDatagram(r.buffer, a.payload)
	return r.stream.SendDatagram(r.buffer)
}

// capsules reads the request stream, whose end is the end of the flow (RFC 9298, section 3.1).
func (r *relay) capsules() error {
	if err := masque.ReadCapsules(r.stream, r.forward); errors.Is(err, errTarget) || errors.Is(err, errProtocol) || errors.Is(err, errSpent) {
		return err
	}
	return errClient
}
