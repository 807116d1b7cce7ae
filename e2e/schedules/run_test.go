package schedules

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The first datagrams of each session take the path of the rule, and the others the schedule's alone.
func TestRuleOfAFile(t *testing.T) {
	t.Parallel()
	for try := 1; ; try++ {
		slowest, err := ruleOfAFile(t)
		if err == nil {
			return
		}
		if slowest < late || try == tries {
			t.Fatalf("with answers within %v: %v", slowest, err)
		}
		t.Logf("with answers within %v: %v; again", slowest, err)
	}
}

// ruleOfAFile returns how long the slowest answer took, and what took another path than it should.
func ruleOfAFile(t *testing.T) (slowest time.Duration, err error) {
	t.Helper()
	w := newWorld(t)
	server, relay := netip.AddrPortFrom(serverAddr, 7200), netip.MustParseAddrPort("127.0.0.1:7200")
	w.echo(server)
	file := filepath.Join(w.dir, "heddle.toml")
	text := fmt.Sprintf(`via = ["home=if:home", "lte=if:lte"]
path = ["office=if:office"]
handshake-via = "office"
schedule = "round-robin"
every = "20p"

[[rule]]
when = "first 10p"
use = "office"

[[split]]
name = "rules"
listen = %q
to = %q

[[split]]
name = "rules-quic"
listen = %q
to = %q
`, relay, server, quicRelay, quicServer)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := w.watch(false)
	running, err := w.start("client", "rules: listening on", "run", file)
	if err == nil {
		err = running.AwaitLog(t.Context(), "rules-quic: listening on")
	}
	if err != nil {
		t.Fatal(err)
	}
	sessions := []traffic{{session: 1, to: relay, n: 510}, {session: 2, to: relay, n: 510, run: 7}}
	for _, s := range sessions {
		took, err := w.timed(s)
		if err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, took)
	}
	slowest = max(slowest, w.quicEcho())
	seen := stop()
	running.Stop()
	for _, s := range sessions {
		all, err := follow(seen, s, server.Port())
		if err != nil {
			return slowest, err
		}
		for i, c := range all {
			want := "office"
			if i >= 10 {
				want = []string{"home", "lte"}[(i-10)/20%2]
			}
			if c.way != want {
				return slowest, fmt.Errorf("session %d: number %d is on %s, not %s", s.session, i, c.way, want)
			}
		}
	}
	return slowest, wantHandshake(seen)
}
