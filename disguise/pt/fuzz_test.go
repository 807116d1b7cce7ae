package pt

import (
	"bytes"
	"context"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"heddle/path"
)

// deaf is a listener that nobody reaches.
type deaf struct{}

func (deaf) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (deaf) Close() error              { return nil }
func (deaf) Addr() net.Addr            { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// lineForm is that of each line (pt-spec, section 3.3).
var lineForm = regexp.MustCompile(`^[A-Za-z0-9_-]+( [^\x00\n\x80-\xff]*)?$`)

var fuzzed = []string{"TOR_PT_MANAGED_TRANSPORT_VER", "TOR_PT_CLIENT_TRANSPORTS", "TOR_PT_SERVER_TRANSPORTS", "TOR_PT_SERVER_BINDADDR",
	"TOR_PT_SERVER_TRANSPORT_OPTIONS", "TOR_PT_ORPORT", "TOR_PT_EXTENDED_SERVER_PORT", "TOR_PT_AUTH_COOKIE_FILE", "TOR_PT_PROXY"}

func FuzzEnvironment(f *testing.F) {
	f.Add("1", "heddle", "", "", "", "", "", "", "socks5://u:p@127.0.0.1:1080")
	f.Add("1,2", "", "heddle", "heddle-127.0.0.1:0", "heddle:cover=random;heddle:a=b", "127.0.0.1:1", "127.0.0.1:2", "/cookie", "")
	f.Add("1", "h\u00e9,\n", "", "", "", "", "", "", "http://[::1]:1")
	f.Add("1", "", "heddle", "heddle-::1:0", `heddle:a\=\:=b;heddle:b=c`, "", "1", "", "")
	f.Fuzz(func(t *testing.T, v0, v1, v2, v3, v4, v5, v6, v7, v8 string) {
		for i, value := range []string{v0, v1, v2, v3, v4, v5, v6, v7, v8} {
			if strings.Contains(value, "\x00") {
				return // no environment holds that
			}
			t.Setenv(fuzzed[i], value)
		}
		t.Setenv("TOR_PT_STATE_LOCATION", os.TempDir()) // nothing is written there
		var out bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = Run(ctx, Options{Version: "1", Stdin: strings.NewReader(""), Stdout: &out,
			NewBridge: func(_ context.Context, o BridgeOptions) (b Bridge, _ error) {
				return b, &path.Error{What: strings.Join(o.Settings["a"], "\n"), Hint: strings.Join(o.Settings["b"], "\n")}
			},
			listen: func(string, string) (net.Listener, error) { return deaf{}, nil }})
		for line := range strings.Lines(out.String()) {
			if !lineForm.MatchString(strings.TrimSuffix(line, "\n")) {
				t.Errorf("%q", line)
			}
		}
	})
}
