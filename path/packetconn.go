package path

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// PacketConn adapts a flow to the socket that protocol libraries need. Writes go to the flow's remote address, whatever
// address is given. Closing it closes the flow.
func PacketConn(f Flow, remote netip.AddrPort) *Conn {
	return &Conn{flow: f, remote: net.UDPAddrFromAddrPort(remote), from: remote, into: make([]Inbound, 4),
		arrived: make(chan arrival), taken: make(chan struct{}), done: make(chan struct{})}
}

// Conn reads a flow in its own goroutine, since a flow has no deadlines.
type Conn struct {
	Stranger Stranger

	flow     Flow
	remote   *net.UDPAddr
	from     netip.AddrPort
	into     []Inbound
	arrived  chan arrival
	taken    chan struct{}
	done     chan struct{}
	deadline Deadline
	start    sync.Once
	close    sync.Once

	writing sync.Mutex
	reading sync.Mutex
}

type arrival struct {
	datagram []byte
	err      error
}

// pump passes the flow's datagrams on one by one, except those of strangers.
func (c *Conn) pump() {
	give := func(a arrival) bool {
		select {
		case c.arrived <- a:
		case <-c.done:
			return false
		}
		select {
		case <-c.taken:
			return true
		case <-c.done:
			return false
		}
	}
	for {
		n, err := c.flow.Receive(c.into)
		if err != nil {
			if !give(arrival{err: err}) || err == net.ErrClosed {
				return
			}
			continue
		}
		for _, in := range c.into[:n] {
			if !c.Stranger.Expected(in.From, c.from) {
				continue
			}
			for d := range in.Datagrams() {
				if !give(arrival{datagram: d}) {
					return
				}
			}
		}
	}
}

func (c *Conn) ReadFrom(p []byte) (int, net.Addr, error) {
	c.start.Do(func() { go c.pump() })
	c.reading.Lock()
	defer c.reading.Unlock()
	select {
	case a := <-c.arrived:
		n := copy(p, a.datagram)
		select {
		case c.taken <- struct{}{}:
		case <-c.done:
		}
		return n, c.remote, a.err
	case <-c.done:
		return 0, nil, net.ErrClosed
	case <-c.deadline.Passed():
		return 0, nil, os.ErrDeadlineExceeded
	}
}

func (c *Conn) WriteTo(p []byte, _ net.Addr) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.flow.Send([][]byte{p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (c *Conn) Close() error {
	err := net.ErrClosed
	c.close.Do(func() {
		close(c.done)
		err = c.flow.Close()
	})
	return err
}

func (c *Conn) LocalAddr() net.Addr {
	return net.UDPAddrFromAddrPort(LocalOf(c.flow))
}

func (c *Conn) SetReadDeadline(t time.Time) error {
	c.deadline.Set(t)
	return nil
}

func (c *Conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing: writes do not block.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }
