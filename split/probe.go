package split

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/path"
)

// prober asks the server for an answer that nobody else can give.
type prober interface {
	// question makes a fresh datagram to send, and the id that its answer will carry.
	question(now time.Time) (datagram []byte, id uint32, err error)
	// answered tells which question a datagram answers, if any.
	answered(datagram []byte) (id uint32, ok bool)
	// isQuestion reports whether a datagram of the session itself asks the same of the server.
	isQuestion(datagram []byte) bool
}

// setProber makes paths count as up only once the server answered on them. It must come before Open.
func (f *Fan) setProber(p prober) {
	f.prober = p
	for _, l := range f.lanes {
		l.health.Proved = true
	}
}

// ask sends at most one question, on the lane that waits longest for one, and gives up on one that was not answered.
func (f *Fan) ask(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.prober == nil || !f.open {
		return
	}
	var next *lane
	for _, l := range f.lanes {
		if !l.probe.sent.IsZero() {
			if now.Sub(l.probe.sent) < probePatience(l) {
				return // a second question could overtake the first, whose timestamp would then be too old
			}
			l.probe.sent = time.Time{}
			l.health.ProbeLost()
		}
		if f.wantsProbe(l, now) && (next == nil || l.probe.due.Before(next.probe.due)) {
			next = l
		}
	}
	if next == nil || now.Before(f.hold) {
		return
	}
	f.put(next, now)
}

// wantsProbe reports whether a lane should be asked now. f.mu is held.
func (f *Fan) wantsProbe(l *lane, now time.Time) bool {
	if flow, _ := l.currentFlow(); flow == nil {
		return false
	}
	switch state, _ := l.health.State(); state {
	case path.Unproven, path.Silent:
		return !now.Before(l.probe.due)
	case path.Suspect:
		// Nobody needs to know about a path while the session is quiet.
		return !now.Before(l.probe.due) && now.Sub(f.lastSent) < suspectMatters
	}
	if l.health.LastHeard().After(l.probe.due) {
		l.probe.wait = 0
	}
	return false
}

const suspectMatters = 10 * time.Second

// put sends a question on a lane. f.mu is held.
func (f *Fan) put(l *lane, now time.Time) {
	datagram, id, err := f.prober.question(now)
	if err != nil {
		f.log.Error("cannot ask the server", "session", f.o.Session, "error", err)
		return
	}
	l.probe.id, l.probe.sent = id, now
	l.probe.wait = min(max(2*l.probe.wait, probeFirst), probeLongest)
	l.probe.due = now.Add(l.probe.wait)
	if err := l.send(now, *f.server.Load(), [][]byte{datagram}); err != nil {
		f.trouble(l, err)
	}
}

// trial gives a silent lane on which one packet of the session itself should be risked, where the server cannot be
// asked otherwise. f.mu is held.
func (f *Fan) trial(now time.Time) *lane {
	if f.prober != nil {
		return nil
	}
	for _, l := range f.lanes {
		if state, _ := l.health.State(); state != path.Silent {
			l.probe.wait = 0
			continue
		}
		if flow, _ := l.currentFlow(); flow == nil || now.Before(l.probe.due) {
			continue
		}
		l.probe.wait = min(max(2*l.probe.wait, probeFirst), probeLongest)
		l.probe.due = now.Add(l.probe.wait)
		return l
	}
	return nil
}

func probePatience(l *lane) time.Duration { return max(probeFirst, 3*l.health.RTT()) }

// consume takes answers to questions out of the session's datagrams.
func (f *Fan) consume(l *lane, now time.Time, datagram []byte) bool {
	if !isResponse(datagram) {
		return false
	}
	id, ok := f.prober.answered(datagram)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !ok {
		f.hold = now.Add(answerHold)
		return false
	}
	for _, asked := range f.lanes {
		if asked.probe.id != id || asked.probe.sent.IsZero() {
			continue
		}
		if asked == l {
			l.health.Answered(now, now.Sub(asked.probe.sent))
		} else {
			// The server answers to where it heard the session last, and that may have moved on since the question. What
			// is proved is the way up; the way down is proved or not when the schedule comes to it.
			asked.health.Reached()
		}
		asked.probe.sent = time.Time{}
	}
	f.judge(now)
	return true
}

// Prove asks the server on each path in turn, until all have answered, or enough have and the others were given two
// chances. Until then nothing else leaves. Its flows are its own and closed when it returns. It fails only when ctx
// ends; tell, which may be nil, hears what it is waiting for.
func (f *Fan) Prove(ctx context.Context, tell func(string)) error {
	if f.server.Load() == nil {
		if err := f.Resolve(ctx); err != nil {
			return err
		}
	}
	missing := map[int]string{}
	for round := 0; ; round++ {
		proven := 0
		for _, l := range f.lanes {
			if state, _ := l.health.State(); state == path.Up {
				proven++
				continue
			}
			delete(missing, l.index)
			rtt, err := f.proveOne(ctx, l, *f.server.Load())
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				missing[l.index] = l.spec.Name + ": " + errhint.Reason(err)
				continue
			}
			l.health.Restore()
			l.health.Answered(f.now(), rtt)
			proven++
		}
		if proven == len(f.lanes) || proven >= f.need() && round >= 1 {
			return nil
		}
		if tell != nil && proven < f.need() {
			tell(fmt.Sprintf("%d of %d required paths answer; waiting for %s", proven, f.need(), joinMissing(missing, len(f.lanes))))
		}
		if err := netutil.Sleep(ctx, min(time.Duration(round+1)*200*time.Millisecond, 3*time.Second)); err != nil {
			return err
		}
	}
}

func joinMissing(missing map[int]string, n int) string {
	var parts []string
	for i := range n {
		if text, ok := missing[i]; ok {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "; ")
}

// proveOne asks on one lane by a flow of its own and gives the round-trip time.
func (f *Fan) proveOne(ctx context.Context, l *lane, to netip.AddrPort) (time.Duration, error) {
	flow, err := path.Open(ctx, l.way, to)
	if err != nil {
		l.health.Fail(errhint.Reason(err))
		return 0, err
	}
	defer flow.Close()
	datagram, id, err := f.prober.question(f.now())
	if err != nil {
		return 0, err
	}
	sent := f.now()
	if _, err := flow.Send([][]byte{datagram}); err != nil {
		return 0, err
	}
	stop := time.AfterFunc(time.Second, func() { flow.Close() })
	defer stop.Stop()
	release := context.AfterFunc(ctx, func() { flow.Close() })
	defer release()
	l.note(&l.up, sent, true, flow, to, datagram)
	into := make([]path.Inbound, 2)
	for {
		n, err := flow.Receive(into)
		if errors.Is(err, net.ErrClosed) {
			return 0, &path.Error{Why: "the server does not answer by it"}
		}
		if err != nil {
			return 0, err // such as an ICMP message that says why
		}
		for _, in := range into[:n] {
			if got, ok := f.prober.answered(in.Data); ok && got == id && in.From == to {
				l.note(&l.down, f.now(), false, flow, to, in.Data)
				// Servers take no more than 50 handshakes a second from a peer.
				return f.now().Sub(sent), netutil.Sleep(ctx, 25*time.Millisecond)
			}
		}
	}
}
