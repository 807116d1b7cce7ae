package inspect

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"heddle/internal/clienthello"
)

func checkFlow(t *testing.T, f *Flow) {
	t.Helper()
	for _, n := range f.Names {
		if n.Name == "" || strings.ContainsFunc(n.Name, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("name %q is not printable", n.Name)
		}
	}
	for _, r := range f.Requests {
		if strings.ContainsFunc(r, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("request %q is not printable", r)
		}
	}
}

func FuzzUDP(f *testing.F) {
	f.Add(uint16(53), []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05wages\x07example\x00\x00\x01\x00\x01"))
	f.Add(uint16(443), initial(f, "v1"))
	f.Add(uint16(443), initial(f, "v2"))
	f.Add(uint16(51820), append([]byte{4, 0, 0, 0}, make([]byte, 60)...))
	f.Fuzz(func(t *testing.T, port uint16, data []byte) {
		var flow Flow
		flow.UDP(50000, port, data)
		flow.UDP(port, 50000, data)
		checkFlow(t, &flow)
	})
}

func FuzzTCP(f *testing.F) {
	f.Add(uint16(443), clientHello(f, "bank.example"))
	f.Add(uint16(80), []byte("GET / HTTP/1.1\r\nHost: wages.example\r\n\r\n"))
	f.Add(uint16(53), []byte("\x00\x1f\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05wages\x07example\x00\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, port uint16, data []byte) {
		var whole, pieces Flow
		whole.TCP(true, 50000, port, 0, true, nil)
		whole.TCP(true, 50000, port, 1, false, data)
		checkFlow(t, &whole)
		pieces.TCP(true, 50000, port, 0, true, nil)
		for i := len(data); i > 0; i -= 3 { // backwards
			pieces.TCP(true, 50000, port, 1+uint32(max(i-3, 0)), false, data[max(i-3, 0):i])
		}
		if len(data) < clienthello.Limit && whole.Protocol != pieces.Protocol {
			t.Errorf("whole %q, in pieces %q", whole.Protocol, pieces.Protocol)
		}
	})
}

// initial is the client's first packet as RFC 9001 (v1) or RFC 9369 (v2) prints it in its appendix A.
func initial(t testing.TB, version string) []byte {
	t.Helper()
	packet, err := os.ReadFile("testdata/initial-" + version + ".bin")
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

func TestQUICNames(t *testing.T) {
	for _, version := range []string{"v1", "v2"} {
		var f Flow
		for range 2 {
			f.UDP(50000, 443, initial(t, version))
		}
		if !reflect.DeepEqual(f.Names, []Name{{"example.com", FromQUIC}}) || f.Protocol != "QUIC" {
			t.Errorf("%s: %q %v", version, f.Protocol, f.Names)
		}
	}
}
