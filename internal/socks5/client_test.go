package socks5

import (
	"bytes"
	"strings"
	"testing"
)

func TestReplies(t *testing.T) {
	for _, c := range []struct {
		reply string
		want  string // an address, or part of an error
		left  int
	}{
		{"\x05\x00\x00\x01\xc0\x00\x02\x07\x04\x38", "192.0.2.7:1080", 0},
		{"\x05\x00\x00\x01\xc0\x00\x02\x07\x04\x38rest", "192.0.2.7:1080", 4},
		{"\x05\x00\x00\x04" + strings.Repeat("\x00", 15) + "\x01\x04\x38", "[::1]:1080", 0},
		{"\x05\x00\x00\x04" + strings.Repeat("\x00", 10) + "\xff\xff\xc0\x00\x02\x07\x04\x38", "192.0.2.7:1080", 0},
		{"\x05\x00\x00\x03\x09192.0.2.7\x04\x38", "192.0.2.7:1080", 0},
		{"\x05\x00\x00\x03\x05proxy\x04\x38", "host name", 0},
		{"\x05\x00\x00\x03\x00\x04\x38", "host name", 0},
		{"\x05\x00\x00\x02\x00\x00\x00", "unknown type", 2},
		{"\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00", "does not know the command", 0},
		{"\x05\x02\x00\x00\x00", "rules forbid", 0},
		{"\x05\x01\x00\x01\x00", "general failure", 0},
		{"\x04\x00\x00\x01\xc0\x00\x02\x07\x04\x38", "SOCKS version 5", 5},
		{"\x05\x00\x00\x01\xc0\x00\x02", "unexpected EOF", 0},
		{"\x05", "unexpected EOF", 0},
		{"", "EOF", 0},
	} {
		r := strings.NewReader(c.reply)
		got, err := readReply(r)
		text := got.String()
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, c.want) || err == nil && r.Len() != c.left {
			t.Errorf("%q: %s, %d bytes left; want %s, %d", c.reply, text, r.Len(), c.want, c.left)
		}
	}
}

func FuzzReply(f *testing.F) {
	f.Add([]byte("\x05\x00\x00\x01\xc0\x00\x02\x07\x04\x38"))
	f.Add([]byte("\x05\x00\x00\x03\x05proxy\x04\x38"))
	f.Add([]byte("\x05\x07\x00\x04"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := readReply(bytes.NewReader(data))
		if err == nil && (!a.Addr().IsValid() || a.Addr().Is4In6() || a.Addr().Zone() != "") {
			t.Errorf("%v from %q", a, data)
		}
	})
}
