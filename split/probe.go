package split

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/path"
)

// prober asks questions that only the server can answer.
type prober interface {
	// question makes a new datagram, and the id that its answer will carry.
	question(now time.Time) (datagram []byte, id uint32, err error)
	// answered returns the question that a datagram answers, if any.
	answered(datagram []byte) (id uint32, ok bool)
	// cookie opens a server's cookie reply to a handshake message, if it is one to that message.
	cookie(reply, message []byte) (cookie []byte, ok bool)
	// isQuestion reports whether a datagram of the session itself asks the same.
	isQuestion(datagram []byte) bool
}

// setProber makes paths count as up only once the server has answered on them. Call it before Open.
func (s *Session) setProber(p prober) {
	s.prober = p
	s.group.NeedProof()
	for _, m := range s.members {
		m.Health.Tested = false // a question costs the session nothing, so a doubtful path is left before the answer
	}
}

// ask gives up on overdue questions, and sends at most one, on the member that has waited longest.
func (s *Session) ask(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prober == nil || !s.open {
		return
	}
	var next *member
	for _, l := range s.members {
		if !l.probe.sent.IsZero() {
			if now.Sub(l.probe.sent) < probePatience(l) {
				return // a second question could overtake the first, whose timestamp would then be too old
			}
			l.probe.sent = time.Time{}
			l.Health.ProbeLost()
		}
		if s.wantsProbe(l, now) && (next == nil || l.Trial.Next().Before(next.Trial.Next())) {
			next = l
		}
	}
	if next == nil || now.Before(s.hold) {
		return
	}
	s.put(next, now)
}

// wantsProbe reports whether to probe a member now. s.mu is held.
func (s *Session) wantsProbe(l *member, now time.Time) bool {
	if l.Current() == nil {
		return false
	}
	// While the session is quiet, the health of its paths matters little.
	active := now.Sub(s.offered) < suspectMatters
	due := l.Trial.Due(now) || active && now.Sub(l.probe.last) >= trialEvery
	switch state, _ := l.Health.State(); state {
	case path.Unproven, path.Silent:
		return due
	case path.Suspect:
		return due && active
	}
	if l.Health.LastHeard().After(l.Trial.Next()) {
		l.Trial.Reset()
	}
	return false
}

const suspectMatters = 10 * time.Second

// put sends a question on a member. s.mu is held.
func (s *Session) put(l *member, now time.Time) {
	datagram, id, err := s.prober.question(now)
	if err != nil {
		s.log.Error("cannot ask the server", "session", s.o.Session, "error", err)
		return
	}
	l.probe.id, l.probe.sent, l.probe.last = id, now, now
	l.Trial.Tried(now, probeFirst, probeLongest)
	s.sendOn(l, now, [][]byte{datagram})
}

// Limits of the time between questions on one member.
const (
	probeFirst   = 500 * time.Millisecond
	probeLongest = 15 * time.Second
)

func probePatience(l *member) time.Duration { return max(probeFirst, 3*l.Health.RTT()) }

// consume removes answers to questions, and cookies, from the session's datagrams.
func (s *Session) consume(l *member, now time.Time, datagram []byte) bool {
	if isCookieReply(datagram) {
		s.demanded(l, now, datagram)
		return true
	}
	if !isResponse(datagram) {
		return false
	}
	id, ok := s.prober.answered(datagram)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok {
		s.hold = now.Add(answerHold)
		return false
	}
	for _, asked := range s.members {
		if asked.probe.id != id || asked.probe.sent.IsZero() {
			continue
		}
		if asked == l {
			l.Health.Answered(now, now.Sub(asked.probe.sent))
		} else {
			// The server answers by the path that it last heard, which may have changed since the question. So this proves only the
			// way up. The way down is tested when the schedule comes to it.
			asked.Health.Reached()
		}
		asked.probe.sent = time.Time{}
	}
	s.judge(now)
	return true
}

// Prove asks the server on each path in turn, until all answered, or enough did and the others had two chances. Nothing else
// leaves before. It uses and closes flows of its own. It fails only if ctx ends. tell, which may be nil, receives progress.
func (s *Session) Prove(ctx context.Context, tell func(string)) error {
	if s.server.Load() == nil {
		if err := s.Resolve(ctx); err != nil {
			return err
		}
	}
	missing := make([]string, len(s.members)) // why each member does not answer, "" if it does
	for round := 0; ; round++ {
		proven := 0
		for _, l := range s.members {
			if state, _ := l.Health.State(); state == path.Up {
				proven++
				continue
			}
			missing[l.Index] = ""
			rtt, opened, err := s.proveOne(ctx, l, *s.server.Load())
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !opened {
				l.Health.Fail(errhint.Reason(err))
			}
			if err != nil {
				missing[l.Index] = l.Spec.Name + ": " + errhint.Reason(err)
				continue
			}
			l.Health.Restore()
			l.Health.Answered(s.now(), rtt)
			proven++
		}
		if proven == len(s.members) || proven >= s.group.Need() && round >= 1 {
			return nil
		}
		if tell != nil && proven < s.group.Need() {
			tell(fmt.Sprintf("%d of %d required paths answer; waiting for %s", proven, s.group.Need(), strings.Join(slices.DeleteFunc(slices.Clone(missing), func(why string) bool { return why == "" }), "; ")))
		}
		if err := netutil.Sleep(ctx, min(time.Duration(round+1)*200*time.Millisecond, 3*time.Second)); err != nil {
			return err
		}
	}
}

// proofPatience is how long [Session.Prove] waits for the answer to one datagram.
const proofPatience = time.Second

// proveOne asks on one member by a new flow and returns the round-trip time, and whether the flow could be opened.
func (s *Session) proveOne(ctx context.Context, l *member, to netip.AddrPort) (rtt time.Duration, opened bool, err error) {
	flow, err := path.Open(ctx, l.Path, to)
	if err != nil {
		return 0, false, err
	}
	defer flow.Close()
	release := context.AfterFunc(ctx, func() { flow.Close() })
	defer release()
	var cookies jar // of this flow: the session's own has another port
	rtt, err = s.exchange(l, flow, to, &cookies)
	switch {
	case err == nil:
		// WireGuard servers take at most 50 handshakes a second from a peer.
		return rtt, true, netutil.Sleep(ctx, 25*time.Millisecond)
	case errors.Is(err, net.ErrClosed) && cookies.cookie != nil:
		return 0, true, &path.Error{Why: "the server is under load: it asked for a cookie, and did not answer once it had one"}
	case errors.Is(err, net.ErrClosed):
		return 0, true, &path.Error{Why: "the server does not answer by it"}
	}
	return 0, true, err // such as an ICMP error
}

// exchange asks on a flow and gives the round-trip time. For each cookie, up to a few, it asks once more.
func (s *Session) exchange(l *member, flow path.Flow, to netip.AddrPort, cookies *jar) (time.Duration, error) {
	question, id, err := s.prober.question(s.now())
	if err != nil {
		return 0, err
	}
	late := time.AfterFunc(proofPatience, func() { flow.Close() })
	defer late.Stop()
	var sent time.Time
	ask := func() error {
		late.Reset(proofPatience)
		sent = s.now()
		cookies.sign(sent, question)
		if _, err := flow.Send([][]byte{question}); err != nil {
			return err
		}
		l.note(&l.up, sent, true, flow, to, question)
		return nil
	}
	if err := ask(); err != nil {
		return 0, err
	}
	into := make([]path.Inbound, 2)
	for asked := 1; ; {
		n, err := flow.Receive(into)
		if err != nil {
			return 0, err
		}
		for _, in := range into[:n] {
			if in.From != to {
				continue
			}
			if got, ok := s.prober.answered(in.Data); ok && got == id {
				l.note(&l.down, s.now(), false, flow, to, in.Data)
				return s.now().Sub(sent), nil
			}
			cookie, ok := s.prober.cookie(in.Data, question)
			if !ok || asked > cookieResends {
				continue
			}
			l.note(&l.down, s.now(), false, flow, to, in.Data)
			s.noteLoad(s.now())
			cookies.cookie, cookies.since = cookie, s.now()
			if err := ask(); err != nil {
				return 0, err
			}
			asked++
		}
	}
}
