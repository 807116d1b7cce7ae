package quicprobe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"heddle/internal/polltest"
)

// begun is a prober of a server that is said to hold two paths, each a source address.
func begun(t *testing.T, s *server) *prober {
	t.Helper()
	o := s.options(2)
	if s.mute {
		o.pace.answer = 2 * time.Second // which is all that there is to wait for
	}
	p, err := newProber(o)
	if err != nil {
		t.Fatal(err)
	}
	p.meter, p.version = &meter{max: o.MaxBytes, stop: func(error) {}}, version1
	if err := p.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	followed := &Rebinding{Survived: true}
	p.report.Parameters, p.report.ALPN, p.report.NewPort, p.report.NewAddress, p.report.PathsAtOnce = &Parameters{}, "h3", followed, followed, 2
	return p
}

// A download that ends since the server has enough of changes is no mere slow one. It runs alone: the server must
// notice while the download goes on.
func TestServerThatEndsSessionsThatChange(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*mood)
		why    string
	}{
		{"closes", func(m *mood) { m.closes = true }, "the server closed the session: Application error 0x7 (remote): too many paths"},
		{"falls silent", func(m *mood) { m.mute = true }, "it lost the session: it acknowledged nothing more within 2s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			polltest.Again(t, func(try int) error {
				p := begun(t, start(t, func(m *mood, _ *quic.Config) { c.change(m) }))
				p.pace.periods, p.pace.window = p.pace.periods[:1], 1500*time.Millisecond<<try // in which the server notices
				if err := p.throughput(t.Context()); err != nil {
					return err
				}
				for _, one := range p.report.Throughput.Cases {
					if one.Survived || one.Why != c.why || one.Switches == 0 {
						return fmt.Errorf("case %+v", one)
					}
				}
				a := advise(p.report)
				if words := strings.Join(a.Words, "\n"); a.Split || len(a.Flags) > 0 || !strings.Contains(words, "every 40ms: "+c.why) {
					return fmt.Errorf("advice %+v, notes %q", a, p.report.Notes)
				}
				return nil
			})
		})
	}
}

func TestSessionsThatChangeEarly(t *testing.T) {
	t.Parallel()
	p := begun(t, start(t, nil))
	if err := p.early(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := p.report.Early; !e.Survived || e.Tries != (Tries{p.pace.early, p.pace.early}) || e.Every != "100ms" || e.Paths != 2 || e.Why != "" {
		t.Errorf("%+v", e)
	}
	p = begun(t, start(t, func(m *mood, _ *quic.Config) { m.mute = true }))
	if err := p.early(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := p.report.Early; e.Survived || e.Tries != (Tries{Tried: 2}) || e.Why == "" {
		t.Errorf("%+v", e)
	}
	if a := advise(p.report); a.Settle != p.pace.ramp {
		t.Errorf("advice %+v", a)
	}
	s := start(t, nil)
	p = begun(t, s)
	s.die()
	if err := p.early(t.Context()); err == nil || p.report.Early != nil {
		t.Errorf("of a server that is gone: %v, %+v", err, p.report.Early)
	}
}

// A network that loses one change, or one young session, is not taken for the server.
func TestOneLostChangeIsNoVerdict(t *testing.T) {
	t.Parallel()
	polltest.Again(t, func(try int) error {
		s := start(t, func(m *mood, _ *quic.Config) { m.loses = 1 })
		p := begun(t, s)
		p.pace.answer = 2 * time.Second << try // twice waited for in vain; a busy machine may be late with answers that do come
		if r, err := p.changed(t.Context(), 1); err != nil || !r.Survived || r.Tries != (Tries{3, 2}) {
			return fmt.Errorf("%+v, %w", r, err)
		}
		s.mu.Lock()
		s.loses = s.count + 1
		s.mu.Unlock()
		if err := p.early(t.Context()); err != nil {
			return err
		}
		if e := p.report.Early; !e.Survived || e.Tries != (Tries{2 * p.pace.early, 2*p.pace.early - 1}) || e.Why != "" {
			return fmt.Errorf("%+v", e)
		}
		return nil
	})
}

// Nothing changes before the server has confirmed the handshake.
func TestProbeWaitsForTheConfirmation(t *testing.T) {
	t.Parallel()
	p := begun(t, start(t, nil))
	s, err := p.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	if !s.recorder.confirmed {
		t.Error("a connection is used that is not confirmed")
	}
}
