package observe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/clitest"
	"heddle/observe"
	"heddle/observe/reconstruct"
)

// heddle has the commands that these tests need.
var heddle = clitest.Program{Command}

// captureDir holds the captures of two taps, of so many datagrams each way.
func captureDir(t *testing.T, home, lte int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "captures")
	local, remote := netip.MustParseAddrPort("192.0.2.1:1234"), netip.MustParseAddrPort("198.51.100.7:51820")
	message := append([]byte{4, 0, 0, 0}, make([]byte, 60)...)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, n := range map[string]int{"home": home, "lte": lte} {
		tap, err := observe.NewFileTap(dir, name, "")
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			tap.Datagram(at.Add(time.Duration(i)*time.Millisecond), true, local, remote, message)
			tap.Datagram(at.Add(time.Duration(i)*time.Millisecond), false, local, remote, message)
		}
		if err := tap.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestObserveReport(t *testing.T) {
	dir, plain := captureDir(t, 3, 1), captureDir(t, 5, 0)
	page := filepath.Join(t.TempDir(), "page.html")
	var out, talk bytes.Buffer
	code := heddle.Run(t.Context(), []string{"observe", "report", dir, "--json", "--html", page, "--baseline", "plain=" + plain}, nil, &out, &talk)
	var report observe.Report
	if err := json.Unmarshal(out.Bytes(), &report); code != cli.ExitOK || err != nil {
		t.Fatalf("exit %d, %v\n%s%s", code, err, &talk, &out)
	}
	if len(report.Observers) != 2 || report.Observers[0].Share != 0.75 || report.Label != "captures" || report.Baselines[0].Label != "plain" {
		t.Errorf("%s", &out)
	}
	if text, err := os.ReadFile(page); err != nil || !bytes.Contains(text, []byte("</html>")) {
		t.Errorf("page: %v", err)
	}
	out.Reset()
	if code := heddle.Run(t.Context(), []string{"observe", "report", dir, "--client", "192.0.2.1"}, nil, &out, &talk); code != cli.ExitOK ||
		!strings.Contains(out.String(), "75.0 %") || strings.Contains(out.String(), "\x1b") {
		t.Errorf("exit %d\n%s", code, &out)
	}
}

func TestObserveTrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.parquet")
	var out, talk bytes.Buffer
	code := heddle.Run(t.Context(), []string{"observe", "trace", captureDir(t, 3, 1), "--out", file, "--json"}, nil, &out, &talk)
	var summary observe.TraceSummary
	if err := json.Unmarshal(out.Bytes(), &summary); code != cli.ExitOK || err != nil || summary.Packets != 8 || summary.Paths["home"] != 6 {
		t.Errorf("exit %d, %v, %s%s", code, err, &out, &talk)
	}
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Error(err)
	}
}

func TestObserveTraceOfListedSessions(t *testing.T) {
	dir := t.TempDir()
	captures, list, file := captureDir(t, 3, 1), filepath.Join(dir, "sessions.json"), filepath.Join(dir, "x.parquet")
	good := fmt.Sprintf(`{"label": "page", "paths": {"a": [%q], "b": [%q]}}`, filepath.Join(captures, "lte.pcapng"), filepath.Join(captures, "home.pcapng"))
	bad := fmt.Sprintf(`{"label": "bad", "paths": {"a": [%q], "b": [%q]}}`, filepath.Join(captures, "lte.pcapng"), list)
	if err := os.WriteFile(list, []byte("["+good+","+bad+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, talk bytes.Buffer
	args := []string{"observe", "trace", "--sessions", list, "--out", file, "--json"}
	if code := heddle.Run(t.Context(), args, nil, &out, &talk); code != cli.ExitFailure || !strings.Contains(talk.String(), "sessions.json: not a capture") {
		t.Errorf("exit %d\n%s", code, &talk)
	}
	var s observe.TraceSummary
	code := heddle.Run(t.Context(), append(args, "--skip-bad"), nil, &out, &talk)
	if err := json.Unmarshal(out.Bytes(), &s); code != cli.ExitOK || err != nil {
		t.Fatalf("exit %d, %v\n%s%s", code, err, &talk, &out)
	}
	if s.Sessions != 1 || s.Paths["a"] != 2 || s.Paths["b"] != 6 || len(s.Captures) != 2 || len(s.Skipped) != 1 ||
		s.Skipped[0].Session != "bad" || s.Skipped[0].What != "capture "+list {
		t.Errorf("%s", &out)
	}
}

func TestObserveBadInput(t *testing.T) {
	dir := captureDir(t, 1, 1)
	text := filepath.Join(t.TempDir(), "notes.pcapng")
	if err := os.WriteFile(text, []byte("dear diary"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"report"}, cli.ExitUsage, "hint:"},
		{[]string{"report", t.TempDir()}, cli.ExitFailure, "there are none\nhint:"},
		{[]string{"report", text}, cli.ExitFailure, "not a capture"},
		{[]string{"report", dir, "--client", "nobody"}, cli.ExitUsage, "it is no address and no network\nhint:"},
		{[]string{"report", dir, "--baseline", dir}, cli.ExitUsage, "LABEL=DIR\nhint:"},
		{[]string{"trace", dir, "--out", filepath.Join(dir, "none", "x")}, cli.ExitFailure, "no such file"},
		{[]string{"trace", dir, "--sessions", "x"}, cli.ExitUsage, "takes {DIR|FILE}..., and got"},
		{[]string{"trace", "--sessions", text}, cli.ExitFailure, "notes.pcapng: invalid character"},
		{[]string{"trace", dir, "--per", "day"}, cli.ExitUsage, "it is no kind of session\nhint: dir, gap or flow"},
		{[]string{"trace", dir, "--size", "frame"}, cli.ExitUsage, "there is no such size\nhint:"},
		{[]string{"trace", dir, "--gap", "0s"}, cli.ExitUsage, "it is not above 0\nhint:"},
		{[]string{"reconstruct", dir}, cli.ExitFailure, "no striped session"},
		{[]string{"reconstruct", dir, "--out", "x"}, cli.ExitUsage, "unless --as says what\nhint:"},
		{[]string{"reconstruct", dir, "--as", "image"}, cli.ExitUsage, "--like"},
	} {
		var out, talk bytes.Buffer
		code := heddle.Run(t.Context(), append([]string{"observe"}, c.args...), nil, &out, &talk)
		if code != c.code || !strings.Contains(talk.String(), c.say) || out.Len() > 0 {
			t.Errorf("%v: exit %d\n%s%s", c.args, code, &talk, &out)
		}
	}
}

func TestReconstructNamesTheSessionsThereAre(t *testing.T) {
	f := reconstructFlags{Session: "c"}
	there := []reconstruct.Session{{ID: "a1"}, {ID: "b2"}}
	_, _, err := f.choose(there)
	if hinted, ok := err.(interface{ HintText() string }); !ok || hinted.HintText() != "there are a1, b2" {
		t.Errorf("%v", err)
	}
	f.Session = "b"
	if s, _, err := f.choose(there); err != nil || s.ID != "b2" {
		t.Errorf("%v, %v", s.ID, err)
	}
}
