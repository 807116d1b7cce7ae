package split

import (
	"errors"
	"net"
	"time"

	"heddle/path"
)

// Receive blocks until datagrams from the server arrive by path i, fills into and returns how many elements it
// filled; see [path.Flow]. It returns [net.ErrClosed] once the session is closed. One goroutine may receive per path.
func (f *Fan) Receive(i int, into []path.Inbound) (int, error) {
	l := f.lanes[i]
	for {
		flow := l.wait()
		if flow == nil {
			return 0, net.ErrClosed
		}
		n, err := flow.Receive(into)
		if errors.Is(err, net.ErrClosed) {
			l.mu.Lock()
			if l.flow == flow {
				l.flow = nil
			}
			l.mu.Unlock()
			continue
		}
		if err != nil {
			f.mu.Lock()
			f.trouble(l, err)
			f.mu.Unlock()
			continue
		}
		if n = f.accept(l, into[:n]); n > 0 {
			return n, nil
		}
	}
}

// accept counts what arrived and keeps what is the session's: datagrams from the server that answer no probe.
func (f *Fan) accept(l *lane, inbound []path.Inbound) int {
	now := f.now()
	server := *f.server.Load()
	_, local := l.currentFlow()
	kept, heard := 0, false
	for _, in := range inbound {
		if in.From != server {
			l.down.dropped.Add(uint64((len(in.Data) + in.Size - 1) / in.Size))
			f.stranger(l, in.From, server)
			continue
		}
		heard = true
		f.follow(now, in)
		for data := in.Data; len(data) > 0; {
			d := data[:min(in.Size, len(data))]
			data = data[len(d):]
			l.down.add(1, len(d))
			f.loss.arrived(now, l.index, d)
			if l.tap != nil {
				l.tap.Datagram(now, false, local, server, d)
			}
		}
		if f.prober != nil && len(in.Data) <= in.Size && f.consume(l, now, in.Data) {
			continue
		}
		inbound[kept] = in
		kept++
	}
	if heard {
		f.heard(l, now)
	}
	return kept
}

// follow lets the rules see what the server sent.
func (f *Fan) follow(now time.Time, in path.Inbound) {
	if f.rules.handshakeLane() < 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for data := in.Data; len(data) > 0; {
		d := data[:min(in.Size, len(data))]
		data = data[len(d):]
		f.rules.handshake.down(now, d)
	}
}

// heard notes that the server was heard on a lane, and wakes the pacer where the unit is over with nothing sent since.
func (f *Fan) heard(l *lane, now time.Time) {
	before, _ := l.health.State()
	l.health.Heard(now)
	if after, _ := l.health.State(); after != before {
		f.mu.Lock()
		f.judge(now)
		f.mu.Unlock()
	}
	if now.UnixNano() >= f.due.Load() || f.asleep.Load() {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// stranger warns of an answer from elsewhere than the server. Only an answer by the server's own machine or network is
// likely to be of interest, but an off-path sender may forge any address, so each is reported once and no more than
// the warnings hold.
func (f *Fan) stranger(l *lane, from, server interface{ String() string }) {
	f.mu.Lock()
	strange := "stranger " + l.spec.Name
	known := f.warned[strange]
	f.warned[strange] = true
	f.mu.Unlock()
	if !known {
		f.warn("on path %s something arrived from %v, which is not the server %v, and was dropped; if the server answers from that address, name it as the endpoint", l.spec.Name, from, server)
	}
}

// heardAt is when the server was last heard on any path; the zero time where it never was.
func (f *Fan) heardAt() time.Time {
	var latest time.Time
	for _, l := range f.lanes {
		if h := l.health.LastHeard(); h.After(latest) {
			latest = h
		}
	}
	return latest
}
