package masque

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"

	"heddle/path"
)

// Lengths of the queues, in datagrams. quic-go queues a few more to send.
const (
	sendQueue    = 64
	receiveQueue = 256
)

// flow is one CONNECT-UDP request.
type flow struct {
	conn   *connection
	stream *http3.RequestStream
	to     netip.AddrPort
	prefix int // bytes before the payload in a QUIC datagram

	exit uint64 // identifies the exit that counts what it sends; 0 if the proxy does not count

	out  chan []byte
	in   chan arrival
	room atomic.Int64 // last measured maximum payload in bytes

	ctx    context.Context // the cause is why the flow ended
	end    context.CancelCauseFunc
	closed atomic.Bool
}

// arrival is one payload, with its position in what the exit sent, or 0.
type arrival struct {
	payload []byte
	place   uint64
}

// open requests a flow to one target.
func (c *connection) open(ctx context.Context, to netip.AddrPort) (path.Flow, error) {
	request, err := c.path.request(ctx, to)
	if err != nil {
		return nil, err
	}
	stream, err := c.http.OpenRequestStream(ctx)
	if err != nil {
		c.goneAway.Store(true) // no new flows on this connection (RFC 9114, section 5.2)
		return nil, c.path.problem("the proxy takes no more flows: "+describeEnd(err), "")
	}
	stop := context.AfterFunc(ctx, func() { cancelStream(stream) })
	var response *http.Response
	if err = stream.SendRequestHeader(request); err == nil {
		response, err = stream.ReadResponse()
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		cancelStream(stream)
		if ctx.Err() != nil {
			return nil, c.path.problem("the proxy does not answer the request", "")
		}
		return nil, c.path.problem("the proxy broke off the request: "+describeEnd(err), "")
	}
	if err := c.path.explainStatus(to, response, request.Header.Get(authorizationHeader) != ""); err != nil {
		cancelStream(stream)
		return nil, err
	}
	f := &flow{conn: c, stream: stream, to: to, out: make(chan []byte, sendQueue), in: make(chan arrival, receiveQueue),
		prefix: quicvarint.Len(uint64(stream.StreamID()/4)) + 1}
	if path.WantsOrder(ctx) {
		f.exit, _ = ParseExitName(response.Header.Get(OrderHeader))
	}
	f.ctx, f.end = context.WithCancelCause(context.Background())
	f.room.Store(int64(f.measure()))
	go f.send()
	go f.pump()
	go f.readCapsules()
	return f, nil
}

func cancelStream(stream *http3.RequestStream) {
	stream.CancelRead(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
	stream.CancelWrite(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
}

const authorizationHeader = "Proxy-Authorization"

// request returns an extended CONNECT (RFC 9298, section 3.4).
func (p *tunnel) request(ctx context.Context, to netip.AddrPort) (*http.Request, error) {
	target, err := url.Parse(p.template.Expand(to))
	if err != nil {
		return nil, p.problem("the URI template gives no URL", "correct it")
	}
	header := http.Header{http3.CapsuleProtocolHeader: {CapsuleProtocol}, "User-Agent": {""}}
	if session := path.SessionOf(ctx); session != "" {
		// Each proxy gets a different name, so that two proxies cannot link their flows of one session.
		name := hmac.New(sha256.New, []byte(session))
		name.Write([]byte(p.template.Authority))
		header.Set(SessionHeader, hex.EncodeToString(name.Sum(nil)[:16]))
		if path.WantsOrder(ctx) {
			header.Set(OrderHeader, OrderOffer)
		}
	}
	if p.known != nil {
		maps.Copy(header, p.known.Header)
	} else if p.o.Secret != nil {
		secret, err := p.o.Secret(p.spec.Name)
		if err != nil {
			return nil, err
		}
		if secret != "" {
			value, ok := authorization(string(secret))
			if !ok {
				return nil, p.problem("its secret is neither USER:PASSWORD nor a token", "look into the file that --secret "+p.spec.Name+"=FILE names")
			}
			header.Set(authorizationHeader, value)
		}
	}
	return &http.Request{Method: http.MethodConnect, Proto: Protocol, Host: p.template.Authority, URL: target, Header: header}, nil
}

// authorization returns the Basic (RFC 7617) or Bearer (RFC 6750) credential.
func authorization(secret string) (string, bool) {
	if strings.Contains(secret, ":") {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(secret)), true
	}
	const token = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/="
	return "Bearer " + secret, strings.Trim(secret, token) == ""
}

// MTU returns the size of the largest IP packet inside the flow.
func (f *flow) MTU() int { return max(f.conn.both()-f.prefix, 0) + headersOf(f.to.Addr()) }

// measure returns the maximum payload in bytes now.
func (f *flow) measure() int { return max(f.conn.room()-f.prefix, 0) }

// Send queues datagrams for the connection. It does not wait: like a socket, it drops what does not fit.
func (f *flow) Send(datagrams [][]byte) (int, error) {
	sent := 0
	var last error
	for _, d := range datagrams {
		if f.ctx.Err() != nil {
			return sent, f.reason()
		}
		if len(d) > int(f.room.Load()) {
			f.room.Store(int64(f.measure()))
			if room := int(f.room.Load()); len(d) > room {
				last = &path.Unreachable{Errno: syscall.EMSGSIZE, MTU: room + headersOf(f.to.Addr())}
				continue
			}
		}
		select {
		case f.out <- AppendDatagram(make([]byte, 0, len(d)+1), d):
			sent++
		default:
			last = &path.Unreachable{Errno: syscall.ENOBUFS}
		}
	}
	return sent, last
}

// send passes the queue to quic-go, which blocks while the connection is congested.
func (f *flow) send() {
	for {
		select {
		case d := <-f.out:
			err := f.stream.SendDatagram(d)
			var tooLarge *quic.DatagramTooLargeError
			if errors.As(err, &tooLarge) {
				f.room.Store(int64(f.measure()))
			} else if err != nil {
				f.fail(describeEnd(err))
				return
			}
		case <-f.ctx.Done():
			return
		}
	}
}

// pump empties quic-go's short receive queue.
func (f *flow) pump() {
	for {
		d, err := f.stream.ReceiveDatagram(f.ctx)
		if err == io.EOF {
			return // readCapsules knows whether this is a clean end
		} else if err != nil {
			f.fail(describeEnd(err))
			return
		}
		if f.take(d) != nil {
			f.fail("the proxy breaks the protocol")
			return
		}
	}
}

// take queues the payload of one HTTP datagram, or drops it if the queue is full.
func (f *flow) take(datagram []byte) error {
	payload, place, err := parse(datagram, f.exit != 0)
	if err != nil || payload == nil {
		return err
	}
	select {
	case f.in <- arrival{payload, place}:
	default:
	}
	return nil
}

// readCapsules reads the request stream. Its end is the end of the flow.
func (f *flow) readCapsules() {
	err := ReadCapsules(f.stream, f.take)
	if err == nil {
		f.fail("the proxy closed it")
		return
	}
	f.fail(describeEnd(err))
}

// fail ends the flow with a reason. The first reason is kept.
func (f *flow) fail(why string) {
	f.end(f.conn.path.problem("the flow through the proxy ended: "+why, ""))
	cancelStream(f.stream)
}

// reason returns why the flow ended.
func (f *flow) reason() error {
	if f.closed.Load() {
		return net.ErrClosed
	}
	return context.Cause(f.ctx)
}

// Receive returns datagrams in order of arrival.
func (f *flow) Receive(into []path.Inbound) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	select {
	case a := <-f.in:
		return f.fill(into, a), nil
	case <-f.ctx.Done():
		return 0, f.reason()
	}
}

// fill copies one arrival, and the others that are queued, to into.
func (f *flow) fill(into []path.Inbound, a arrival) int {
	for n := 0; ; {
		into[n] = path.Inbound{Data: a.payload, Size: max(len(a.payload), 1), From: f.to, Exit: f.exit, Order: a.place}
		if n++; n == len(into) {
			return n
		}
		select {
		case a = <-f.in:
		default:
			return n
		}
	}
}

// Check fails once the flow, its connection or the path below has ended.
func (f *flow) Check() error {
	if f.ctx.Err() != nil {
		return f.reason()
	}
	return f.conn.check()
}

// LocalAddr returns the local address of the connection.
func (f *flow) LocalAddr() netip.AddrPort { return path.LocalOf(f.conn.wire.flow) }

func (f *flow) Close() error {
	if f.closed.Swap(true) {
		return net.ErrClosed
	}
	f.end(net.ErrClosed)
	cancelStream(f.stream)
	f.conn.path.release(f.conn)
	return nil
}
