package inspect

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"

	"heddle/internal/clienthello"
)

// clientHello is the first flight of a real TLS client.
func clientHello(t testing.TB, name string) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: name}).Handshake()
		client.Close()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(server, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(server, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

func TestTLSNameOverSegmentsInAnyOrder(t *testing.T) {
	hello := clientHello(t, "bank.example")
	want := []Name{{Name: "bank.example", From: FromTLS}}
	for _, size := range []int{1, 7, 100, 1400} {
		for _, order := range []string{"forwards", "backwards", "twice"} {
			var f Flow
			f.TCP(true, 50000, 443, 0xffffff00, true, nil) // the sequence number wraps
			var at []int
			for i := 0; i < len(hello); i += size {
				switch order {
				case "forwards":
					at = append(at, i)
				case "backwards":
					at = append([]int{i}, at...)
				case "twice":
					at = append(at, i, i)
				}
			}
			for _, i := range at {
				f.TCP(true, 50000, 443, 0xffffff01+uint32(i), false, hello[i:min(i+size, len(hello))])
			}
			if !reflect.DeepEqual(f.Names, want) || f.Protocol != "TLS" {
				t.Errorf("%s, %d bytes a segment: %v %v", order, size, f.Protocol, f.Names)
			}
		}
	}
}

func TestTLSNameOverRecords(t *testing.T) {
	hello := clientHello(t, "bank.example")
	var cut []byte
	for body := hello[5:]; len(body) > 0; body = body[min(50, len(body)):] {
		n := min(50, len(body))
		cut = append(append(cut, 22, 3, 1, 0, byte(n)), body[:n]...)
	}
	var f Flow
	f.TCP(true, 50000, 443, 0, true, nil)
	f.TCP(true, 50000, 443, 1, false, cut)
	if len(f.Names) != 1 || f.Names[0].Name != "bank.example" {
		t.Errorf("%v", f.Names)
	}
}

func TestClearText(t *testing.T) {
	cases := []struct {
		name      string
		feed      func(f *Flow)
		protocol  string
		names     []Name
		requests  []string
		unclearly bool
	}{
		{"http", func(f *Flow) {
			f.TCP(true, 5000, 80, 1, false, []byte("GET /a?b HTTP/1.1\r\nHost: wages.example:8080\r\n\r\n"))
			f.TCP(false, 80, 5000, 1, false, []byte("HTTP/1.1 200 OK\r\n\r\n"))
		}, "HTTP", []Name{{"wages.example", FromHTTP}}, []string{"GET wages.example:8080/a?b"}, false},
		{"http, hostile", func(f *Flow) {
			f.TCP(true, 5000, 80, 1, false, []byte("GET /\x1b[31m HTTP/1.1\r\nHost: a\"b\r\n\r\n"))
		}, "HTTP", nil, nil, false},
		{"dns", func(f *Flow) {
			f.UDP(5000, 53, []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05wages\x07example\x00\x00\x01\x00\x01"))
		}, "DNS", []Name{{"wages.example", FromDNS}}, nil, false},
		{"dns, a name with an escape", func(f *Flow) {
			f.UDP(5000, 53, []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05wa\x1bes\x07example\x00\x00\x01\x00\x01"))
		}, "DNS", []Name{{`wa\x1bes.example`, FromDNS}}, nil, false},
		{"dns over tcp", func(f *Flow) {
			f.TCP(true, 5000, 53, 1, false, []byte("\x00\x1f\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05wages\x07example\x00\x00\x01\x00\x01"))
		}, "DNS", []Name{{"wages.example", FromDNS}}, nil, false},
		{"ssh", func(f *Flow) { f.TCP(true, 5000, 22, 1, false, []byte("SSH-2.0-x\r\n")) }, "SSH", nil, nil, true},
		{"wireguard data", func(f *Flow) { f.UDP(5000, 51820, append([]byte{4, 0, 0, 0}, make([]byte, 60)...)) }, "WireGuard", nil, nil, true},
		{"wireguard handshake", func(f *Flow) { f.UDP(5000, 51820, append([]byte{1, 0, 0, 0}, make([]byte, 144)...)) }, "WireGuard", nil, nil, true},
		{"not wireguard", func(f *Flow) { f.UDP(5000, 51820, append([]byte{1, 0, 0, 0}, make([]byte, 143)...)) }, "", nil, nil, true},
		{"noise", func(f *Flow) { f.TCP(true, 5000, 9, 1, false, bytes.Repeat([]byte{0xA5}, 99)) }, "", nil, nil, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var f Flow
			c.feed(&f)
			if f.Protocol != c.protocol || !reflect.DeepEqual(f.Names, c.names) || !reflect.DeepEqual(f.Requests, c.requests) ||
				f.Readable == c.unclearly {
				t.Errorf("%q %v %v readable %v", f.Protocol, f.Names, f.Requests, f.Readable)
			}
		})
	}
}

func TestFlowIsBounded(t *testing.T) {
	var f Flow
	f.TCP(true, 1, 443, 0, true, nil)
	for i := range 1 << 16 { // a hello that never ends
		f.TCP(true, 1, 443, 1+uint32(i)*100, false, append([]byte{22, 3, 1, 0xff, 0xff, 1, 0, 0x3f, 0xff}, make([]byte, 91)...))
	}
	if n := cap(f.sides[1].stream.Bytes()); n > 2*clienthello.Limit {
		t.Errorf("%d bytes are kept", n)
	}
	for i := range 10000 {
		f.add(FromDNS, strings.Repeat("x", i))
	}
	if len(f.Names) > mostSeen || len(f.Names[len(f.Names)-1].Name) > longestText+3 {
		t.Errorf("%d names", len(f.Names))
	}
}
