package node

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"heddle/internal/tcptest"
	"heddle/overlay/client"
	"heddle/path"
)

// The node's clock decides over TCP and UDP, and the client hears of the difference.
func TestClocksDiffer(t *testing.T) {
	to := tcptest.Serve(t, tcptest.Echo)
	at, _ := udpEcho(t)
	for name, c := range map[string]struct {
		off         time.Duration // of the node's clock
		from, until time.Duration // of the grant, by the client's
		want        client.Reason
		says        []string
	}{
		"behind":                              {-time.Hour, 0, 2 * time.Hour, client.ReasonEarly, []string{"the node's clock is ", "behind this device's"}},
		"ahead":                               {time.Hour, -time.Minute, 30 * time.Minute, client.ReasonExpired, []string{"the node's clock is ", "ahead of this device's"}},
		"ahead, and the grant is long enough": {time.Hour, -time.Minute, 2 * time.Hour, "", nil},
	} {
		s := start(t, func(o *Options) { o.now = func() time.Time { return time.Now().Add(c.off) } })
		grant := s.grant(t, func(g *client.Grant) { g.From, g.Until = time.Now().Add(c.from), time.Now().Add(c.until) })
		for _, ctx := range []context.Context{t.Context(), path.WithEarly(t.Context())} {
			conn, err := s.through(t, ctx, grant, to)
			if err == nil && path.WantsEarly(ctx) {
				_, _ = conn.Write([]byte("x"))
				_, err = conn.Read(make([]byte, 1))
			}
			said(t, "TCP, "+name, err, c.want, c.says)
		}
		_, err := openFlow(t, t.Context(), s.way(t, grant, s.holder, nil), at)
		said(t, "UDP, "+name, err, c.want, c.says)
	}
}

func said(t *testing.T, name string, err error, want client.Reason, words []string) {
	t.Helper()
	if reasonOf(err) != want || (err == nil) != (want == "") {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
	for _, word := range words {
		if !strings.Contains(fmt.Sprint(err), word) {
			t.Errorf("%s: %q is not in: %v", name, word, err)
		}
	}
}
