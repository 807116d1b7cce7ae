package disguise

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/clitest"
	"heddle/observe"
)

// heddle has the commands that these tests need.
var heddle = clitest.Program{Command}

// callCapture is the capture of an RTP call, and of a conversation that is too short.
func callCapture(t *testing.T) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	tap, err := observe.NewFileTap(dir, "call", "")
	if err != nil {
		t.Fatal(err)
	}
	local, remote := netip.MustParseAddrPort("192.0.2.1:1234"), netip.MustParseAddrPort("198.51.100.7:5004")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range 100 {
		b := make([]byte, 172)
		b[0] = 0x80
		binary.BigEndian.PutUint16(b[2:], uint16(i))
		binary.BigEndian.PutUint32(b[4:], uint32(i)*160)
		tap.Datagram(at.Add(time.Duration(i)*20*time.Millisecond), true, local, remote, b)
		tap.Datagram(at.Add(time.Duration(i)*20*time.Millisecond+time.Millisecond), false, local, remote, b)
	}
	tap.Datagram(at, true, local, netip.MustParseAddrPort("198.51.100.7:53"), make([]byte, 30))
	if err := tap.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, "call.pcapng")
}

func TestRecordAndTraces(t *testing.T) {
	dir, capture := callCapture(t)
	db := filepath.Join(dir, "call.db")
	code, said := heddle.Quietly(t, "disguise", "record", capture, "--out", db, "--about", "a test")
	if code != cli.ExitOK || !strings.Contains(said, "1 trace, fingerprint ") || !strings.Contains(said, "skipped call, udp 192.0.2.1:1234 to 198.51.100.7:53: 1 packets up and 0 down") {
		t.Fatalf("exit %d: %s", code, said)
	}
	picture := filepath.Join(dir, "call.svg")
	var out, talk bytes.Buffer
	code = heddle.Run(t.Context(), []string{"disguise", "traces", db, "--json", "--plot", picture}, nil, &out, &talk)
	var list traceList
	if err := json.Unmarshal(out.Bytes(), &list); err != nil || code != cli.ExitOK || len(list.Traces) != 1 {
		t.Fatalf("exit %d, %v: %s%s", code, err, &out, &talk)
	}
	want := traceRow{Name: "call", Protocol: "RTP, payload type 0", Transport: "udp", Port: 5004, Seconds: 1.981,
		Up: side{Packets: 100, Bytes: 17200, Header: 12, Capacity: 12000}, Down: side{Packets: 100, Bytes: 17200, Header: 12, Capacity: 12000}}
	if list.Traces[0] != want || list.About != "a test" || !strings.Contains(said, list.Fingerprint) {
		t.Errorf("%+v", list)
	}
	if svg, err := os.ReadFile(picture); err != nil || !bytes.Contains(svg, []byte("</svg>")) || !bytes.Contains(svg, []byte(">call<")) {
		t.Errorf("%v: %s", err, svg)
	}
	if code, said := heddle.Quietly(t, "disguise", "traces", db); code != cli.ExitOK || !strings.Contains(said, "RTP, payload type 0  udp   5004  2.0 s") {
		t.Errorf("exit %d: %s", code, said)
	}
}

func TestRecordAsJSON(t *testing.T) {
	dir, capture := callCapture(t)
	var out, talk bytes.Buffer
	code := heddle.Run(t.Context(), []string{"disguise", "record", capture, "--out", filepath.Join(dir, "a.db"), "--json", "--most", "1s", "--loop"}, nil, &out, &talk)
	var answer recorded
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil || code != cli.ExitOK || len(answer.Skipped) != 1 || talk.Len() > 0 {
		t.Fatalf("exit %d, %v: %s%s", code, err, &out, &talk)
	}
	if r := answer.Traces[0]; !r.Loop || r.Up.Packets != 51 || r.Down.Packets != 50 {
		t.Errorf("%+v", r)
	}
}

func TestMistakes(t *testing.T) {
	dir, capture := callCapture(t)
	db := filepath.Join(dir, "a.db")
	if err := os.WriteFile(db, []byte("not a database"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--least 1: a trace has at least 2": {"record", capture, "--least", "1"},
		"--most 0s: it is not above 0":      {"record", capture, "--most", "0s"},
		"--client":                          {"record", capture, "--client", "me"},
		"no conversation gives a trace":     {"record", capture, "--out", db, "--least", "1000"},
		"not a capture":                     {"record", db},
		"it is no trace database":           {"traces", db},
		"no such file":                      {"traces", db + "x"},
		"takes CAPTURE..., and got nothing": {"record"},
	} {
		code, said := heddle.Quietly(t, append([]string{"disguise"}, args...)...)
		if code == cli.ExitOK || !strings.Contains(said, want) {
			t.Errorf("%v: exit %d, %s", args, code, said)
		}
	}
	if text, err := os.ReadFile(db); err != nil || string(text) != "not a database" {
		t.Errorf("a failure replaced the file: %v", err)
	}
}

// A capture of HTTPS becomes a site by the keys of its connections.
func TestSiteOfACapture(t *testing.T) {
	const capture, keys = "../../../disguise/site/testdata/http2.pcap", "../../../disguise/site/testdata/http2.keys"
	out := filepath.Join(t.TempDir(), "site.db")
	for _, c := range []struct {
		args []string
		code int
		said string
	}{
		{[]string{capture, "--keylog", keys, "--out", out}, cli.ExitOK, out + ": 3 pages, 7 objects, "},
		{[]string{capture, "--out", out}, cli.ExitFailure, "skipped 2 objects or more, of connections that no key log opens\n"},
		{[]string{capture, "--out", out}, cli.ExitFailure, "HTTPS needs --keylog"},
		{[]string{capture, "--keylog", keys + "x"}, cli.ExitFailure, "http2.keysx"},
	} {
		var said bytes.Buffer
		code := heddle.Run(t.Context(), append([]string{"disguise", "site", "import"}, c.args...), nil, &said, &said)
		if code != c.code || !strings.Contains(said.String(), c.said) {
			t.Errorf("%q: exit %d: %s", c.args, code, &said)
		}
	}
}
