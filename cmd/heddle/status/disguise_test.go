package status

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"heddle/cmd/heddle/internal/clitest"
	"heddle/cmd/heddle/internal/control"
	"heddle/disguise/bridge"
	"heddle/disguise/client"
	"heddle/disguise/handshake"
	"heddle/path"
)

func TestDisguiseText(t *testing.T) {
	found := []running{
		{Name: "bridge-443", Status: control.Status{Bridge: &bridge.Status{Listen: []string{"[::]:443"}, Since: *ago(26 * time.Hour), Strangers: 3, LinksEver: 71, Streams: 4031,
			Links: []bridge.LinkStatus{{Since: *ago(time.Minute), Mode: 1, Connections: 4, Up: 120_000, Down: 9_000_000, WireUp: 150_000, WireDown: 9_200_000, PostQuantum: true},
				{Since: *ago(time.Second), Connections: 1}},
			Refused: map[handshake.Reason]uint64{handshake.NoHello: 1207, handshake.Clock: 1}, Full: 1, Forbidden: 12, Unreachable: 3, Dropped: 9}}},
		{Name: "disguise-1080", Status: control.Status{Disguise: &control.Disguise{Listen: "127.0.0.1:1080", Bridge: "192.0.2.9:443", Since: *ago(time.Hour),
			Links: []client.Status{{Since: *ago(time.Minute), Connections: 3, Streams: 2, Up: 120_000, Down: 9_000_000, WireUp: 150_000, WireDown: 9_200_000, Again: 800,
				Why: "1 of 2 required paths work", Paths: []client.PathStatus{{Name: "home", State: path.Up, Connections: 3, Opened: 9, WireUp: 100_000, WireDown: 7_000_000, Why: "http: the bridge did not answer on it",
					Covers: []client.CoverStatus{{Name: "https", State: path.Up, Connections: 3, Opened: 5, WireUp: 90_000, WireDown: 7_000_000},
						{Name: "http", State: path.Down, Why: "the bridge did not answer on it", Opened: 4, WireUp: 10_000}}},
					{Name: "lte", State: path.Down, Why: "no device is called wwan0", Opened: 4, WireUp: 50_000, WireDown: 2_200_000}}}}}}},
		{Name: "disguise-2222", Status: control.Status{Disguise: &control.Disguise{Listen: "127.0.0.1:2222", To: "bridge", Bridge: "192.0.2.9:443", Since: *ago(time.Hour),
			Why: "it does not answer"}}},
	}
	var out bytes.Buffer
	if err := printStatus(&out, answer{Running: found}, statusNow, 0); err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "status-disguise.golden", out.String())
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(line); n > 110+1 {
			t.Errorf("%d columns: %s", n-1, line)
		}
	}
}
