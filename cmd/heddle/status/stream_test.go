package status

import (
	"bytes"
	"testing"
	"time"

	"heddle/cmd/heddle/internal/clitest"
	"heddle/cmd/heddle/internal/control"
	"heddle/identity"
	"heddle/stripe"
)

func TestStatusOfStreams(t *testing.T) {
	peer, err := identity.ParseKey("ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	if err != nil {
		t.Fatal(err)
	}
	session := stripe.Status{Session: "8ec21bc74e34ee39", Peer: peer, Service: "files", Schedule: "fast", Shares: "2of3", MinPaths: 2, State: "running",
		Since: *ago(90 * time.Second), Sent: 45_100_000, Received: 812, Paths: []stripe.PathStatus{
			{Name: "tokyo", Observer: "if:eth0", State: "up", RTT: 150 * time.Millisecond, Up: stripe.Count{Bytes: 22_600_000, Share: 0.41}, Down: stripe.Count{Bytes: 500, Share: 0.5}, LastHeard: ago(100 * time.Millisecond)},
			{Name: "paris", Observer: "if:wwan0", State: "up", RTT: 31 * time.Millisecond, Up: stripe.Count{Bytes: 22_600_000, Share: 0.41}, Down: stripe.Count{Bytes: 500, Share: 0.5}, LastHeard: ago(0)},
			{Name: "oslo", Observer: "if:eth0", State: "down", Why: "nothing came back for 6s", Up: stripe.Count{Bytes: 9_900_000, Share: 0.18, Again: 3}, LastHeard: ago(42 * time.Second)},
		}}
	dial := control.Stream{Role: "dial", Service: "files", Listen: "127.0.0.1:2222", To: "files.example:4470", Since: *ago(3 * time.Hour), Warm: 1,
		Why: "1 of 3 paths is up", Sessions: []stripe.Status{session}}
	recv := control.Stream{Role: "recv", Service: "files", Listen: "[::]:4470", To: "inbox", Since: *ago(time.Minute)}
	for range mostSessions + 2 {
		recv.Sessions = append(recv.Sessions, stripe.Status{Session: "00\x1b[2J", Peer: peer, Schedule: "strict", State: "stopped", Why: "1 of 2 paths is down", Since: statusNow, Degrade: true})
	}
	var out bytes.Buffer
	if err := printStatus(&out, answer{Running: []running{{Name: "dial-files", Status: control.Status{Stream: &dial}},
		{Name: "recv-files", Status: control.Status{Stream: &recv}}}}, statusNow, 0); err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "status-stream.golden", out.String())
}
