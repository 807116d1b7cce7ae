package wireguard

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"heddle/path"
)

const (
	largestDatagram = 1 << 16
	receiveRoom     = 2 * largestDatagram // Receive stops when there is no room for one more datagram
	socketBuffer    = 2 << 20             // bytes that wait inside for Receive
)

// flow is a UDP socket inside the tunnel, connected to one server.
type flow struct {
	tunnel   *tunnel
	to       netip.AddrPort
	endpoint tcpip.Endpoint
	queue    *waiter.Queue
	readable chan struct{}
	entry    waiter.Entry
	done     chan struct{}
	leave    func()
	close    sync.Once

	data   []byte // receive buffer
	held   []byte // part of data: a datagram that did not fit the last Receive
	reader bytes.Reader
}

func newFlow(t *tunnel, own netip.Addr, to netip.AddrPort, leave func()) (*flow, error) {
	f := &flow{tunnel: t, to: to, queue: &waiter.Queue{}, done: make(chan struct{}), leave: leave, data: make([]byte, receiveRoom)}
	fail := func(err tcpip.Error) (*flow, error) {
		return nil, &path.Error{What: t.what, Why: "no socket inside its tunnel", Err: errors.New(err.String())}
	}
	endpoint, err := t.inside.stack.NewEndpoint(udp.ProtocolNumber, protocolOf(own), f.queue)
	if err != nil {
		return fail(err)
	}
	f.endpoint = endpoint
	endpoint.SocketOptions().SetReceiveBufferSize(socketBuffer, true)
	f.entry, f.readable = waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventErr)
	f.queue.EventRegister(&f.entry)
	if err = endpoint.Bind(fullAddress(own, 0)); err == nil {
		err = endpoint.Connect(fullAddress(to.Addr(), to.Port()))
	}
	if err != nil {
		endpoint.Close()
		return fail(err)
	}
	return f, nil
}

// Check fails while the tunnel does not work.
func (f *flow) Check() error { return f.tunnel.check() }

// LocalAddr returns the address inside the tunnel.
func (f *flow) LocalAddr() netip.AddrPort {
	local, err := f.endpoint.GetLocalAddress()
	if err != nil {
		return netip.AddrPort{}
	}
	a, _ := netip.AddrFromSlice(local.Addr.AsSlice())
	return netip.AddrPortFrom(a.Unmap(), local.Port)
}

// Send passes datagrams to the stack, which drops those that do not fit its queue. While the tunnel does not work, Send
// takes nothing, as it would be stale when it left.
func (f *flow) Send(datagrams [][]byte) (int, error) {
	if err := f.tunnel.check(); err != nil {
		return 0, err
	}
	sent := 0
	var last error
	for _, d := range datagrams {
		f.reader.Reset(d)
		_, err := f.endpoint.Write(&f.reader, tcpip.WriteOptions{})
		if err == nil {
			sent++
			continue
		}
		last = f.explain(err)
		if !errors.Is(last, syscall.ENOBUFS) && !errors.Is(last, syscall.EMSGSIZE) {
			break
		}
	}
	return sent, last
}

// Receive joins datagrams of one length, as the kernel does (UDP_GRO).
func (f *flow) Receive(into []path.Inbound) (int, error) {
	n, end := 0, 0
	if f.held != nil {
		end = copy(f.data, f.held)
		into[0], f.held, n = f.inbound(0, end), nil, 1
	}
	for len(f.data)-end >= largestDatagram {
		count, err := f.read(f.data[end:], n == 0)
		if count < 0 && n > 0 {
			return n, nil // nothing more is available, or one datagram failed
		}
		if count < 0 {
			return 0, err
		}
		start := end
		end += count
		switch {
		case n > 0 && joins(into[n-1], count):
			in := &into[n-1]
			in.Data = f.data[start-len(in.Data) : end]
		case n < len(into):
			into[n] = f.inbound(start, end)
			n++
		default:
			f.held = f.data[start:end]
			return n, nil
		}
	}
	return n, nil
}

func (f *flow) inbound(start, end int) path.Inbound {
	return path.Inbound{Data: f.data[start:end:end], Size: max(end-start, 1), From: f.to}
}

// read returns the length of the next datagram, or -1 if there is none or an error. It waits for one if wait is set.
func (f *flow) read(data []byte, wait bool) (int, error) {
	for {
		to := tcpip.SliceWriter(data)
		result, err := f.endpoint.Read(&to, tcpip.ReadOptions{})
		if err == nil {
			return result.Count, nil
		}
		if _, none := err.(*tcpip.ErrWouldBlock); !none {
			return -1, f.explain(err)
		}
		if !wait {
			return -1, nil
		}
		select {
		case <-f.readable:
		case <-f.done:
			return -1, net.ErrClosed
		}
	}
}

// joins reports whether a datagram of count bytes may follow those of in: all have one length, the last may be shorter.
func joins(in path.Inbound, count int) bool {
	return count > 0 && count <= in.Size && len(in.Data) > 0 && len(in.Data)%in.Size == 0
}

// explain returns the errno that a kernel socket would return.
func (f *flow) explain(err tcpip.Error) error {
	select {
	case <-f.done:
		return net.ErrClosed
	default:
	}
	switch err.(type) {
	case *tcpip.ErrConnectionRefused:
		return &path.Unreachable{Errno: syscall.ECONNREFUSED, By: f.to.Addr()}
	case *tcpip.ErrNoBufferSpace, *tcpip.ErrWouldBlock:
		return syscall.ENOBUFS
	case *tcpip.ErrMessageTooLong:
		return &path.Unreachable{Errno: syscall.EMSGSIZE, MTU: f.tunnel.inside.mtu}
	}
	return &path.Error{What: f.tunnel.what, Why: "inside its tunnel", Err: errors.New(err.String())}
}

// Close closes the socket. A blocked Receive returns.
func (f *flow) Close() error {
	f.close.Do(func() {
		close(f.done)
		f.queue.EventUnregister(&f.entry)
		f.endpoint.Close()
		f.leave()
	})
	return nil
}

// question is a UDP socket inside the tunnel for a DNS lookup.
type question struct {
	*gonet.UDPConn
	leave func()
}

// Close closes the socket. If it was the last user, the tunnel closes later.
func (q *question) Close() error {
	defer q.leave()
	return q.UDPConn.Close()
}

type stream struct {
	*gonet.TCPConn
	leave func()
}

// Close closes the connection. If it was the last user, the tunnel closes later.
func (s *stream) Close() error {
	defer s.leave()
	return s.TCPConn.Close()
}
