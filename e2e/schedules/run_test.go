package schedules

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// The first datagrams of each session take the path of the rule, and the others the schedule's alone.
func TestRuleOfAFile(t *testing.T) {
	t.Parallel()
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
		if err := w.send(s); err != nil {
			t.Fatal(err)
		}
	}
	w.quicEcho()
	seen := stop()
	for _, s := range sessions {
		all, err := follow(seen, s, server.Port())
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range all {
			want := "office"
			if i >= 10 {
				want = []string{"home", "lte"}[(i-10)/20%2]
			}
			if c.way != want {
				t.Fatalf("session %d: number %d is on %s, not %s", s.session, i, c.way, want)
			}
		}
	}
	wantHandshake(t, seen)
}
