package observe

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/errhint"
)

// sent is one datagram from the client, or to it.
type sent struct {
	after time.Duration
	out   bool
	port  uint16 // the client's
	bytes int
}

// seen writes a capture of datagrams, of which each is truncated to 40 bytes.
func seen(t *testing.T, dir, name string, all ...sent) {
	t.Helper()
	var file bytes.Buffer
	w, err := NewWriter(&file, LinkRaw, "x", ClientComment(alice.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		from, to := netip.AddrPortFrom(alice.Addr(), s.port), vpn
		if !s.out {
			from, to = to, from
		}
		ip := appendUDP(nil, from, to, make([]byte, s.bytes))
		if err := w.Write(epoch.Add(s.after), ip[:min(40, len(ip))], len(ip)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Flush(), os.WriteFile(filepath.Join(dir, name+".pcapng"), file.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestCut(t *testing.T) {
	both, one, late := t.TempDir(), t.TempDir(), t.TempDir()
	seen(t, both, "home", sent{0, true, 1000, 10}, sent{20 * time.Second, true, 1000, 20})
	seen(t, both, "lte", sent{4 * time.Second, false, 1000, 0}, sent{8*time.Second + 1500, true, 1000, 40})
	seen(t, one, "x", sent{0, true, 1000, 10}, sent{time.Second, false, 2000, 20}, sent{2 * time.Second, false, 1000, 30})
	seen(t, late, "x", sent{0, true, 1000, 10}, sent{time.Second, true, 1000, 20}, sent{500 * time.Millisecond, true, 1000, 30})
	for _, c := range []struct {
		name    string
		dir     string
		options TraceOptions
		want    string // load, path, times and sizes of each row
		fails   string
	}{
		{"whole", both, TraceOptions{}, "0 0 [0 20000000] [38 48]; 0 1 [4000000 8000002] [-28 68]", ""},
		{"by silences of all paths", both, TraceOptions{Gap: 5 * time.Second},
			"0 0 [0] [38]; 0 1 [4000000 8000002] [-28 68]; 1 0 [0] [48]; 1 1 [] []", ""},
		{"by payload", both, TraceOptions{Payload: true}, "0 0 [0 20000000] [10 20]; 0 1 [8000002] [40]", ""},
		{"by conversation", one, TraceOptions{Flows: true}, "0 -1 [0 2000000] [38 -58]; 1 -1 [0] [-48]", ""},
		{"by conversation, on two paths", both, TraceOptions{Flows: true}, "", "cannot be matched"},
		{"backwards", late, TraceOptions{}, "", "x.pcapng: its times go backwards at packet 3"},
		{"backwards, sorted", late, TraceOptions{Sort: true}, "0 -1 [0 500000 1000000] [38 58 48]", ""},
	} {
		s, err := Load("page", c.dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		trace := NewTrace()
		if err := trace.Add(s, c.options); err != nil || c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) || errhint.Of(err) == "" {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		var got []string
		for _, r := range trace.rows {
			got = append(got, fmt.Sprint(r.Load, " ", r.Path, " ", r.Time, " ", r.Size))
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: %s", c.name, text)
		}
	}
}

func TestFilter(t *testing.T) {
	if _, err := exec.LookPath("tcpdump"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	seen(t, dir, "x", sent{0, true, 1000, 10}, sent{time.Second, false, 1000, 200}, sent{time.Second, true, 2000, 300})
	for expression, want := range map[string]int{"": 3, "len > 200": 2, "udp port 1000": 2, "icmp": 0} { // 40 bytes were captured
		s, err := Load("x", dir, Options{Filter: NewFilter(expression)})
		if err != nil || len(s.Observers[0].Packets) != want || s.Observers[0].captures[0].Filtered != uint64(3-want) {
			t.Errorf("%q: %v, %+v", expression, err, s)
		}
	}
	if _, err := Load("x", dir, Options{Filter: NewFilter("nonsense here")}); err == nil || !strings.Contains(err.Error(), "syntax error") || errhint.Of(err) == "" {
		t.Error(err)
	}
	t.Setenv("PATH", dir)
	if _, err := Load("x", dir, Options{Filter: NewFilter("udp")}); err == nil || errhint.Of(err) != "install tcpdump" {
		t.Error(err)
	}
}
