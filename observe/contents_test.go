package observe

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
)

// rowsOf writes a session as a trace and reads it back.
func rowsOf(t *testing.T, dir string, options Options) []TraceRow {
	t.Helper()
	s, err := Load("page", dir, options)
	if err != nil {
		t.Fatal(err)
	}
	trace, file := NewTrace(), bytes.Buffer{}
	if err := trace.Add(s, TraceOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := trace.Write(&file); err != nil {
		t.Fatal(err)
	}
	opened, err := parquet.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := opened.Schema().String(), parquet.SchemaOf(TraceRow{}).String(); got != want {
		t.Errorf("the columns are not those of the type: %s, want %s", got, want)
	}
	if version, _ := opened.Lookup("heddle.columns"); version != "2" {
		t.Errorf("the columns have version %q", version)
	}
	rows, err := parquet.Read[TraceRow](bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestTraceKeepsContents(t *testing.T) {
	dir := t.TempDir()
	plainSession(t, dir)
	row := rowsOf(t, dir, Options{Contents: true})[0]
	const request = "GET /march.html HTTP/1.1\r\nHost: wages.example\r\n\r\n"
	// The first connection is the DNS query, the second is TCP, whose request comes out of order.
	if len(row.Up) != 2 || len(row.Down) != 2 || !bytes.Contains(row.Up[0], []byte("wages")) || string(row.Up[1]) != request {
		t.Errorf("the client's first bytes: %q", row.Up)
	}
	if len(row.Down) != 2 || len(row.Down[0]) != len(row.Up[0]) || len(row.Down[1]) != BeginningLimit || !bytes.HasPrefix(row.Down[1], []byte("HTTP/1.1 200 OK")) {
		t.Errorf("the server's first bytes: %d", len(row.Down))
	}
	if n := len(row.Size); len(row.Payload) != n || len(row.Entropy) != n || len(row.Printable) != n {
		t.Fatalf("%d packets, %d payloads, %d and %d statistics", n, len(row.Payload), len(row.Entropy), len(row.Printable))
	}
	at := slices.Index(row.Payload, int32(len(request)-10))
	if at < 0 || row.Size[at] != row.Payload[at]+40 || row.Entropy[at] < 3 || row.Printable[at] < 0.8 {
		t.Errorf("the request's packet: %d of %v", at, row.Payload)
	}
	if last := len(row.Size) - 1; row.Payload[last] != 1400 || row.Printable[last] > 0.02 || row.Size[last] != -1440 {
		t.Errorf("the last packet: %d bytes in %d, %g printable", row.Payload[last], row.Size[last], row.Printable[last])
	}
}

func TestTraceKeepsNoContentsUnasked(t *testing.T) {
	dir := t.TempDir()
	plainSession(t, dir)
	row := rowsOf(t, dir, Options{})[0]
	if len(row.Entropy)+len(row.Printable)+len(row.Up)+len(row.Down) > 0 || len(row.Payload) != len(row.Size) {
		t.Errorf("%d statistics, %d first bytes, %d payloads", len(row.Entropy), len(row.Up), len(row.Payload))
	}
}

func TestBeginningsOfAConversationThatTheServerBegan(t *testing.T) {
	dir, client := t.TempDir(), netip.MustParseAddrPort("10.0.1.2:40000")
	captureFile(t, dir, "home", client.Addr(), func(write func(time.Duration, []byte)) {
		write(0, appendUDP(nil, vpn, client, []byte("from the server")))
		write(1, appendUDP(nil, client, vpn, []byte("from the client")))
		write(2, appendUDP(nil, client, vpn, []byte("more")))
	})
	row := rowsOf(t, dir, Options{Contents: true})[0]
	if string(row.Up[0]) != "from the client" || string(row.Down[0]) != "from the server" {
		t.Errorf("up %q, down %q", row.Up, row.Down)
	}
}
