package gateway

import (
	"os"
	"strings"
	"testing"

	"heddle/internal/nstest"
)

// A connection that began with a SYN cookie, as in a flood of SYNs, moves as others do, also if the cookie could keep none of the client's options.
func TestMoveAfterASynCookie(t *testing.T) {
	for name, timestamps := range map[string]string{"with timestamps": "1", "without timestamps": "0"} {
		t.Run(name, func(t *testing.T) {
			m := newMoving(t, places4, false)
			m.gateway.Do(t, func() error { return nstest.Set("ipv4/tcp_syncookies", "2") })
			m.client.Do(t, func() error { return nstest.Set("ipv4/tcp_timestamps", timestamps) })
			c, from := m.visit(m.config)
			if from != c.LocalAddr().String() {
				t.Errorf("the tenant sees %s, and the client is %v", from, c.LocalAddr())
			}
			m.echo(c, much)
			m.expect(moved(1, false))
			m.gateway.Do(t, func() error {
				if n := extended(t, "SyncookiesRecv"); n == "0" {
					t.Error("no cookie came back")
				}
				return nil
			})
		})
	}
}

// extended returns one of the numbers that the kernel counts for TCP in this network.
func extended(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/net/netstat")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
	for i, one := range names {
		if one == name {
			return values[i]
		}
	}
	t.Fatalf("the kernel does not count %s", name)
	return ""
}
