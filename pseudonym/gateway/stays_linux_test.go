package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"heddle/internal/polltest"
	"heddle/pseudonym/ech"
)

// A connection that cannot move for what the client is or sent is relayed where the mode allows that, or fails, and the log says why once.
func TestSaysWhyConnectionsStay(t *testing.T) {
	p384 := func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP384} }
	for _, c := range []struct {
		name   string
		mode   Mode
		agent  string
		client func(*tls.Config)
		relays bool
		says   error // nil if the client is not why
	}{
		{"it may be asked again", Auto, "127.0.0.1:1", p384, true, errAgain},
		{"it may be asked again, handoff", Handoff, "127.0.0.1:1", p384, false, errAgain},
		{"another family", Auto, "[2001:db8::1]:4444", func(*tls.Config) {}, true, errFamily},
		{"another family, handoff", Handoff, "[2001:db8::1]:4444", func(*tls.Config) {}, false, errFamily},
		{"no such client", Auto, "127.0.0.1:1", func(*tls.Config) {}, true, nil}, // this machine may not move it
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHidden(t, nil) // for its site and client
			var log bytes.Buffer
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			to := Place{Addresses: append([]string{AgentPrefix + c.agent}, h.routes.to[h.label]...), Key: keyOf(ofTenant)}
			g := New(Options{Zone: zone, Router: fixed{h.label, to}, Hellos: func() []*ech.Key { return []*ech.Key{h.key} }, Mode: c.mode,
				Mover: NewMover(identity(ofGateways), func() (Holder, error) { return nil, errors.New("not permitted") }), Log: slog.New(slog.NewTextHandler(&log, nil))})
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- g.Serve(ctx, l) }()
			defer func() { cancel(); <-ended }()

			c.client(h.client)
			const visits = 2
			for range visits {
				if _, state, err := visit(t, l.Addr().String(), h.client); (err == nil) != c.relays || err == nil && !state.ECHAccepted {
					t.Fatalf("%+v, %v", state, err)
				}
			}
			polltest.Until(t, func() error {
				if n := g.Counts(); c.relays && n.Relayed == visits && n.Encrypted == visits || !c.relays && n.Failed == visits {
					return nil
				} else {
					return fmt.Errorf("%+v", n)
				}
			})
			said := log.String()
			lines, dropped := strings.Count(said, "some connections do not move to agents"), strings.Contains(said, "dropped in mode handoff")
			switch {
			case c.says == nil && said != "":
				t.Errorf("it says %s", said)
			case c.says != nil && (lines != 1 || !strings.Contains(said, c.says.Error()) || dropped == c.relays || strings.Count(said, "\n") != 1):
				t.Errorf("it does not say once %q: %s", c.says, said)
			}
			if strings.Contains(said, string(h.label)) || strings.Contains(said, c.agent) {
				t.Errorf("it names a site: %s", said)
			}
		})
	}
}
