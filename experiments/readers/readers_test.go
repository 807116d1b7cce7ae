package readers

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"heddle/internal/errhint"
	"heddle/lab/peer"
)

func TestWhatReadersPrint(t *testing.T) {
	nDPI := func(text string) map[string]int {
		says, err := nDPISays(text)
		if err != nil {
			t.Fatal(err)
		}
		return says
	}
	for _, c := range []struct {
		name      string
		got, want map[string]int
	}{
		{"nDPI", nDPI("Detected protocols:\n\tTLS                  packets: 85            bytes: 23154         flows: 2            \n" +
			"\tTLS.Google           packets: 5             bytes: 1             flows: 3            \n\n\nProtocol statistics:\n\tSafe                         23154 bytes\n"),
			map[string]int{"TLS": 2, "TLS.Google": 3}},
		{"tshark", tsharkSays("0\t\tTLSv1.3\n0\t\tTCP\n0\t\tTLSv1.3\n0\t\tHTTP\n1\t\tTCP\n\t0\tRTP\n\t1\tUDP\n2\t\tHTTP\n2\t\tTCP\n2\t\tTCP\n"),
			map[string]int{"TLSv1.3": 1, "no protocol": 2, "RTP": 1, "HTTP": 1}},
		{"p0f", p0fSays(p0fLines("[2026/11/24 13:03:32] mod=syn|cli=127.0.0.1/1|srv=127.0.0.1/2|subj=cli|os=Linux 2.2.x-3.x|dist=0|params=generic|raw_sig=4:64\n" +
			"[2026/11/24 13:03:32] mod=mtu|cli=127.0.0.1/1|srv=127.0.0.1/2|subj=cli|link=???|raw_mtu=65535\n" +
			"[2026/11/24 13:03:32] mod=syn+ack|cli=127.0.0.1/1|srv=127.0.0.1/2|subj=srv|os=???|dist=0|params=none|raw_sig=4:64\n" +
			"[2026/11/24 13:03:32] mod=http request|cli=127.0.0.1/1|srv=127.0.0.1/2|subj=cli|app=Chrome 51 or newer|lang=English|params=dishonest|raw_sig=1:Host\n")),
			map[string]int{"syn: Linux 2.2.x-3.x": 1, "syn+ack: unknown": 1, "http request: Chrome 51 or newer, dishonest": 1}},
	} {
		if !maps.Equal(c.got, c.want) {
			t.Errorf("%s says %v, want %v", c.name, c.got, c.want)
		}
	}
}

// A recorded visit has two connections of TLS. Those that began before a capture do not count.
func TestReaders(t *testing.T) {
	recorded, err := os.ReadFile("../../disguise/site/testdata/http2.pcap")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "visits")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(t.Context(), io.Discard, []string{dir}); errors.Is(err, peer.ErrMissing) {
		t.Skip("typed skip:", err)
	} else if err == nil || errhint.Of(err) == "" {
		t.Errorf("a directory without captures: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "one.pcapng"), recorded, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t.Context(), "tshark", "-r", filepath.Join(dir, "one.pcapng"), "-Y", "tcp.flags.syn == 0", "-w", filepath.Join(dir, "begun-before.pcapng")); err != nil {
		t.Fatal(err)
	}
	rows, err := Read(t.Context(), io.Discard, []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"nDPI": "TLS", "tshark": "TLSv1.3", "p0f": "syn: Linux 2.2.x-3.x"}
	for _, row := range rows {
		if row.Captures != "visits" || row.Says[want[row.Reader]] != 2 {
			t.Errorf("%+v, want two of %s", row, want[row.Reader])
		}
	}
	if len(rows) != len(want) {
		t.Errorf("%d rows", len(rows))
	}
	if err := os.WriteFile(filepath.Join(dir, "two.pcapng"), []byte("no capture"), 0o644); err != nil {
		t.Fatal(err)
	}
	if rows, err := Read(t.Context(), io.Discard, []string{dir}); err == nil {
		t.Errorf("a file that is no capture: %v", rows)
	}
}
