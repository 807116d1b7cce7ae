package socks5

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"heddle/path"
)

const (
	chunkBytes  = 128 << 10 // of datagrams with headers, per Send of the flow under it
	maxChatter  = 4096      // bytes that a proxy may send on a connection that should be silent
	inboundRoom = 4         // receives of the flow under it, per call
)

// flow is one association: datagrams to the proxy's relay, and the connection that keeps the association alive.
type flow struct {
	what    string
	under   path.Flow
	control net.Conn
	relay   netip.AddrPort
	to      netip.AddrPort
	header  []byte

	slab    []byte   // datagrams with headers
	chunk   [][]byte // slices of slab
	raw     []path.Inbound
	waiting []path.Inbound // of raw, not yet returned

	ctx   context.Context // the cause is why the association ended
	ended context.CancelCauseFunc
	close sync.Once
}

func newFlow(what string, under path.Flow, control net.Conn, relay, to netip.AddrPort) *flow {
	f := &flow{what: what, under: under, control: control, relay: relay, to: to,
		header: headerTo(to), slab: make([]byte, 0, chunkBytes), raw: make([]path.Inbound, inboundRoom)}
	f.ctx, f.ended = context.WithCancelCause(context.Background())
	go f.hold()
	return f
}

// hold waits for the end of the connection, which ends the association (RFC 1928, section 7).
func (f *flow) hold() {
	_, err := io.Copy(io.Discard, io.LimitReader(f.control, maxChatter))
	f.end("the proxy closed the connection that holds the association", err)
}

// end ends the association, and returns the first reason.
func (f *flow) end(why string, err error) error {
	f.ended(&path.Error{What: f.what, Why: why, Err: err, Hint: "it is asked for again; the proxy's log may say more"})
	f.control.Close()
	return f.over()
}

// over returns why the association ended, or nil.
func (f *flow) over() error { return context.Cause(f.ctx) }

// Check fails once the association has ended, or the path under it changed.
func (f *flow) Check() error {
	if err := f.over(); err != nil {
		return err
	}
	return path.Check(f.under)
}

// LocalAddr returns the local address of the datagrams to the relay, if the path under it knows it.
func (f *flow) LocalAddr() netip.AddrPort { return path.LocalOf(f.under) }

// Send adds the header to each datagram. They share one buffer, so that the flow below can send runs of one length at once.
func (f *flow) Send(datagrams [][]byte) (int, error) {
	sent := 0
	var last error
	for len(datagrams) > 0 {
		if err := f.over(); err != nil {
			return sent, err
		}
		taken := f.fill(datagrams)
		n, err := f.under.Send(f.chunk)
		sent += n
		if err != nil {
			last = f.judge(err)
			if n < taken && !tooLarge(err) {
				return sent, last
			}
		}
		datagrams = datagrams[taken:]
	}
	return sent, last
}

// fill makes the next chunk, of at least one datagram, and returns the number of datagrams.
func (f *flow) fill(datagrams [][]byte) int {
	f.slab, f.chunk = f.slab[:0], f.chunk[:0]
	for i, d := range datagrams {
		size := len(f.header) + len(d)
		if i > 0 && len(f.slab)+size > cap(f.slab) {
			break
		}
		start := len(f.slab)
		f.slab = append(append(f.slab, f.header...), d...)
		f.chunk = append(f.chunk, f.slab[start:len(f.slab):len(f.slab)])
	}
	return len(f.chunk)
}

func tooLarge(err error) bool {
	return errors.Is(err, syscall.EMSGSIZE) || errors.Is(err, syscall.ENOBUFS)
}

// judge translates an error of datagrams to the relay to one of datagrams to the server.
func (f *flow) judge(err error) error {
	var u *path.Unreachable
	switch {
	case !errors.As(err, &u):
		return err
	case u.FromServer(f.relay.Addr()):
		return f.end("the proxy's relay is gone", err)
	case u.Errno == syscall.EMSGSIZE && u.MTU > len(f.header):
		return &path.Unreachable{Errno: u.Errno, By: u.By, MTU: u.MTU - len(f.header)}
	}
	return err
}

// Receive returns datagrams of the proxy's relay without headers. It drops fragments and invalid datagrams.
func (f *flow) Receive(into []path.Inbound) (int, error) {
	n := 0
	for n == 0 {
		if len(f.waiting) == 0 {
			got, err := f.under.Receive(f.raw[:min(len(f.raw), len(into))])
			if errors.Is(err, net.ErrClosed) {
				return 0, net.ErrClosed
			}
			if err != nil {
				return 0, f.judge(err)
			}
			f.waiting = f.raw[:got]
		}
		for n < len(into) && len(f.waiting) > 0 {
			in := &f.waiting[0]
			if in.From != f.relay || len(in.Data) == 0 {
				f.waiting = f.waiting[1:]
				continue
			}
			var ok bool
			if into[n], ok = unwrap(in); ok {
				n++
			}
			if len(in.Data) == 0 {
				f.waiting = f.waiting[1:]
			}
		}
	}
	return n, nil
}

// unwrap takes the first datagrams of one server from in, and joins their payloads. If !ok, it took one invalid datagram.
func unwrap(in *path.Inbound) (out path.Inbound, ok bool) {
	whole := in.Data
	written := 0
	for len(in.Data) > 0 {
		d := in.Data[:min(in.Size, len(in.Data))]
		from, length, err := parseHeader(d)
		if err != nil {
			if written == 0 {
				in.Data = in.Data[len(d):]
			}
			break
		}
		payload := d[length:]
		if written > 0 && (from != out.From || len(payload) == 0 || len(payload) > out.Size) {
			break
		}
		if written == 0 {
			out = path.Inbound{From: from, Size: max(len(payload), 1)}
			ok = true
		}
		copy(whole[written:], payload)
		written += len(payload)
		in.Data = in.Data[len(d):]
		if len(payload) < out.Size {
			break
		}
	}
	out.Data = whole[:written]
	return out, ok
}

func (f *flow) Close() error {
	f.close.Do(func() {
		f.control.Close()
		f.under.Close()
	})
	return nil
}
