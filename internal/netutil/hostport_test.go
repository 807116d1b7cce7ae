package netutil

import (
	"strings"
	"testing"
)

func TestSplitHostPort(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[2001:db8::1]:80": "2001:db8::1", "[fe80::1%eth0]:80": "fe80::1%eth0", "vpn.example:80": "vpn.example",
		"": "", ":80": "", "vpn.example": "", "vpn.example:": "", "vpn.example:0": "", "vpn.example:65536": "", "vpn.example:+80": "",
		"vpn.example:http": "", "[vpn.example]:80": "", "[192.0.2.1]:80": "", "2001:db8::1:80": "", "a@vpn.example:80": "",
		"http://vpn.example:80": "", "vpn example:80": "", strings.Repeat("a.", 127) + ":80": "",
	} {
		host, port, err := SplitHostPort(text)
		if host != want || (err == nil) != (want != "") || err == nil && port != 80 {
			t.Errorf("%q: %q, %d, %v", text, host, port, err)
		}
	}
}
