package status

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/clitest"
	"heddle/cmd/heddle/internal/control"
	"heddle/proxy/connectudp"
	"heddle/split"
)

var statusNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time {
	at := statusNow.Add(-d)
	return &at
}

func office() split.Status {
	lost := 0.0012
	return split.Status{
		Session: "office", Backend: "wireguard", To: "vpn.example.com:51820", Server: "203.0.113.9:51820",
		Schedule: "weighted", Every: "100ms", MinPaths: 2, State: "running", Since: *ago(12*time.Minute + 3*time.Second),
		Switches: 7201, MTU: 1361, TooLarge: 12,
		Paths: []split.PathStatus{{
			Name: "home", Kind: "if", Observer: "if:eth0", State: "up", Address: netip.MustParseAddrPort("192.168.178.23:51820"),
			RTT: 12_340_000, Loss: &lost, Up: split.Count{Packets: 33_120, Bytes: 2_119_680, Share: 0.312},
			Down: split.Count{Packets: 64_010, Bytes: 90_511_240, Share: 0.334}, Switches: 2400, LastHeard: ago(200 * time.Millisecond),
		}, {
			Name: "lte", Kind: "if", Observer: "if:wwan0", State: "up", Address: netip.MustParseAddrPort("10.64.0.2:51820"),
			RTT: 48 * time.Millisecond, Loss: &lost, Up: split.Count{Packets: 999, Bytes: 999_950, Share: 0.6879},
			Down: split.Count{Packets: 1_234_567, Bytes: 12_180_511_240, Share: 0.6656}, Switches: 4801, LastHeard: ago(0),
		}, {
			Name: "dsl", Kind: "src", Observer: "src:2001:db8::7", State: "silent", Why: "nothing heard for 42 s, a probe goes out each second",
			Address: netip.MustParseAddrPort("[2001:db8:1234:5678:9abc:def0:1234:5678]:51820"),
			RTT:     900 * time.Microsecond, Up: split.Count{Packets: 4, Bytes: 592, Share: 0.00004, Dropped: 3},
			Down: split.Count{Dropped: 1}, LastHeard: ago(42 * time.Second),
		}},
	}
}

func TestStatusText(t *testing.T) {
	stopped := office()
	stopped.State, stopped.Why = "stopped", "1 of 3 paths is healthy, 2 are needed"
	stopped.Paths, stopped.Refused = stopped.Paths[2:], 1
	stopped.Paths[0].LastHeard, stopped.Paths[0].Address = nil, netip.AddrPort{}
	stopped.Warnings = []string{"paths home and again are the same way out (if:eth0), so one observer sees both"}
	hostile := split.Status{Session: "\x1b[31mred", Backend: "relay", To: "x", State: "running", Since: statusNow, Degrade: true, Every: "50p", Schedule: "uniform"}
	for _, c := range []struct {
		name  string
		found []running
		width int
	}{
		{"none", nil, 0},
		{"running", []running{{Name: "office", Status: control.Status{Sessions: []split.Status{office()}}}}, 0},
		{"narrow", []running{{Name: "office", Status: control.Status{Sessions: []split.Status{office()}}}}, 80},
		{"stopped", []running{{Name: "office", Status: control.Status{Sessions: []split.Status{stopped}}}}, 0},
		{"proxy", []running{{Name: "masque-443", Status: control.Status{Proxy: &connectudp.Status{Listen: "[::]:443", Since: *ago(3 * time.Hour), Users: 3, Connections: 2,
			Open: map[string]int{"ann": 2, "bob": 1}, FlowsOpen: 3, Flows: 1204, RefusedAuth: 7, RefusedTarget: 1, Up: connectudp.Direction{Packets: 33_120, Bytes: 2_119_680},
			Down: connectudp.Direction{Packets: 64_010, Bytes: 90_511_240, Dropped: 12}}}}}, 0},
		{"several", []running{
			{Name: "hung", Error: "hung: it runs but does not answer: EOF"},
			{Name: "split-51820"},
			{Name: "split-51821", Status: control.Status{Sessions: []split.Status{hostile}}}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := printStatus(&out, answer{Running: c.found}, statusNow, c.width); err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, "status-"+c.name+".golden", out.String())
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(line); n > cmp.Or(c.width, 110)+1 {
					t.Errorf("%d columns: %s", n-1, line)
				}
			}
		})
	}
}

// The field names are a stable interface.
func TestStatusJSON(t *testing.T) {
	var out bytes.Buffer
	if err := cli.WriteJSON(&out, answer{Running: []running{{Name: "office", Status: control.Status{Sessions: []split.Status{office()}}}}}); err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "status-json.golden", out.String())
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		looks := 0
		look := func(context.Context) (answer, error) {
			if looks++; looks == 3 {
				cancel()
			}
			return answer{Running: []running{{Name: "office", Status: control.Status{Sessions: []split.Status{office()}}}}}, nil
		}
		var out bytes.Buffer
		began := time.Now()
		if err := watchStatus(ctx, strings.NewReader(""), &out, look, true); err != nil {
			t.Fatal(err)
		}
		if passed := time.Since(began); looks != 3 || passed != 2*time.Second {
			t.Errorf("%d looks in %v; want 3 in 2s", looks, passed)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 {
			t.Fatalf("%d lines of JSON; want 2", len(lines))
		}
		var last answer
		if err := json.Unmarshal([]byte(lines[1]), &last); err != nil || last.Running[0].Name != "office" {
			t.Errorf("%+v, %v", last, err)
		}
		failed := errors.New("no")
		if err := watchStatus(t.Context(), strings.NewReader(""), &out, func(context.Context) (answer, error) { return answer{}, failed }, false); !errors.Is(err, failed) {
			t.Errorf("watch gives %v", err)
		}
	})
}
