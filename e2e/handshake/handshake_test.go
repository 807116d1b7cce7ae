package handshake

import (
	"errors"
	"net"
	"testing"

	"github.com/quic-go/quic-go"
	"golang.org/x/sys/unix"

	"heddle/observe/inspect"
)

var versions = []quic.Version{quic.Version1, quic.Version2}

// waitedInVain reports whether a load ended because nothing came.
func waitedInVain(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

func TestCensorKeepsThePageFromLoading(t *testing.T) {
	w := newWorld(t)
	for _, v := range versions {
		if err := w.load3(v, home, server, open, patience); err != nil {
			t.Errorf("an unlisted name by QUIC %v: %v", v, err)
		}
		if err := w.load3(v, home, server, blocked, inVain); !waitedInVain(err) {
			t.Errorf("a listed name by QUIC %v: %v", v, err)
		}
	}
	if err := w.loadTLS(open); err != nil {
		t.Errorf("an unlisted name by TLS: %v", err)
	}
	if err := w.loadTLS(blocked); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("a listed name by TLS: %v", err)
	}
	if s, n := w.status("home"); n.QUIC != 2 || n.TLS != 1 || n.Dropped == 0 {
		t.Errorf("%+v", s)
	}
}

func TestHandshakeByAnotherPath(t *testing.T) {
	const loads = 5
	for _, v := range versions {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t)
			stop := w.watch()
			p := w.split("--handshake-via", "office")
			for i := range loads {
				if err := w.load3(v, relay.Addr(), relay, blocked, patience); err != nil {
					t.Errorf("load %d: %v", i, err)
				}
			}
			p.Stop()
			seen := stop()
			if err := silent(seen); err != nil {
				t.Error(err)
			}
			for _, way := range censored {
				// An empty capture shows no handshake either.
				if h := seen[way]; h.up < 20*loads || h.down < pageBytes/1500/4*loads {
					t.Errorf("%s carried %d packets up and %d down", way, h.up, h.down)
				}
				// What passes a censor crosses its device twice.
				if c := seen[way+"-censor"]; c.up <= seen[way].up || c.down <= seen[way].down {
					t.Errorf("%s carried %+v, and its censor saw %+v", way, seen[way], c)
				}
				if s, _ := w.status(way); s.Initials > 0 || s.Dropped > 0 || s.Packets == 0 {
					t.Errorf("the censor of %s: %+v", way, s)
				}
			}
			if h := seen["office"]; h.initials < 2*loads || len(h.names) != 1 || h.names[0] != (inspect.Name{Name: blocked, From: inspect.FromQUIC}) {
				t.Errorf("office: %+v", h)
			}
			if t.Failed() {
				t.Logf("%+v\n%s", seen, p.Log())
			}
		})
	}
}

// Without the rule the same checks find the handshake where it should not be: they can fail.
func TestHandshakeByTheSchedule(t *testing.T) {
	w := newWorld(t)
	stop := w.watch()
	p := w.split()
	for _, v := range versions {
		if err := w.load3(v, relay.Addr(), relay, blocked, inVain); !waitedInVain(err) {
			t.Errorf("a listed name by QUIC %v: %v", v, err)
		}
		if err := w.load3(v, relay.Addr(), relay, open, patience); err != nil {
			t.Errorf("an unlisted name by QUIC %v: %v", v, err)
		}
	}
	p.Stop()
	seen := stop()
	if err := silent(seen); err == nil {
		t.Errorf("no handshake is found on the censored networks: %+v", seen)
	}
	if h := seen["office"]; h.long+h.up+h.down > 0 {
		t.Errorf("a path that no rule uses carried packets: %+v", h)
	}
	var convicted uint64
	for _, way := range censored {
		_, n := w.status(way)
		convicted += n.QUIC
	}
	if convicted < uint64(len(versions)) {
		t.Errorf("%d flows were convicted", convicted)
	}
}
