package client

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"sync"

	"heddle/disguise/mux"
	"heddle/internal/netutil"
	"heddle/path"
)

// flowQueue is how many datagrams may wait for a reader. The next ones are dropped.
const flowQueue = 256

// flow is a flow of datagrams to one address.
type flow struct {
	to     netip.AddrPort
	number uint16
	of     *shared
	stream *mux.Stream // the flow is open while it is
	leave  func()

	arrived chan []byte
	done    chan struct{} // closed at the end

	mu     sync.Mutex
	failed error // why it ended; nil while it lives
}

// take queues a datagram from the bridge.
func (f *flow) take(datagram []byte) { netutil.Offer(f.arrived, bytes.Clone(datagram)) }

// watch waits for the end of the stream.
func (f *flow) watch() {
	_, _ = io.Copy(io.Discard, f.stream)
	f.end(&path.Error{What: "bridge " + f.of.o.Line.Address.String(), Why: "the flow to " + f.to.String() + " ended", Hint: "it is asked for again"})
}

func (f *flow) end(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = why
		close(f.done)
	}
}

func (f *flow) over() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// Check fails once the flow has ended.
func (f *flow) Check() error { return f.over() }

// Send gives datagrams to the link, which drops those that wait too long.
func (f *flow) Send(datagrams [][]byte) (int, error) {
	for i, d := range datagrams {
		if err := f.over(); err != nil {
			return i, err
		}
		if err := f.of.SendDatagram(f.number, d); err != nil {
			return i, err
		}
	}
	return len(datagrams), nil
}

// Receive returns what arrived.
func (f *flow) Receive(into []path.Inbound) (int, error) {
	var first []byte
	select {
	case first = <-f.arrived:
	case <-f.done:
		return 0, f.over()
	}
	n := 0
	for d := first; ; {
		into[n] = path.Inbound{Data: d, Size: max(len(d), 1), From: f.to}
		if n++; n == len(into) {
			return n, nil
		}
		select {
		case d = <-f.arrived:
		default:
			return n, nil
		}
	}
}

// Close ends the flow at the bridge too.
func (f *flow) Close() error {
	f.end(net.ErrClosed)
	f.of.remove(f)
	err := f.stream.Close()
	f.leave()
	return err
}
