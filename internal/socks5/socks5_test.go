package socks5

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
)

func TestReadRequest(t *testing.T) {
	for name, test := range map[string]struct {
		in      string
		command byte
		to      string
		err     error
	}{
		"IPv4":            {"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50", 1, "192.0.2.1:80", nil},
		"IPv6":            {"\x05\x01\x00\x04\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x01\xbb", 1, "[2001:db8::1]:443", nil},
		"IPv4 in IPv6":    {"\x05\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x01\x00\x50", 1, "192.0.2.1:80", nil},
		"name":            {"\x05\x03\x00\x03\x0bexample.com\x00\x35", 3, "example.com:53", nil},
		"address as name": {"\x05\x01\x00\x03\x09192.0.2.1\x00\x50", 1, "192.0.2.1:80", nil},
		"SOCKS4":          {"\x04\x01\x00\x50\xc0\x00\x02\x01\x00", 0, "", ErrVersion},
		"unknown address": {"\x05\x01\x00\x02\xc0\x00\x02\x01\x00\x50", 1, "", ErrAddressType},
		"empty name":      {"\x05\x01\x00\x03\x00\x00\x50", 1, "", ErrAddressType},
		"name with zero":  {"\x05\x01\x00\x03\x03a\x00b\x00\x50", 1, "", ErrAddressType},
		"name with space": {"\x05\x01\x00\x03\x03a b\x00\x50", 1, "", ErrAddressType},
		"cut":             {"\x05\x01\x00\x01\xc0\x00", 1, "", io.ErrUnexpectedEOF},
	} {
		command, to, err := ReadRequest(strings.NewReader(test.in))
		if !errors.Is(err, test.err) || err == nil && (command != test.command || to.String() != test.to) {
			t.Errorf("%s: got %d %v, %v", name, command, to, err)
		}
	}
}

func TestReadMethods(t *testing.T) {
	for in, want := range map[string]bool{"\x05\x01\x00": true, "\x05\x02\x02\x00": true, "\x05\x01\x02": false, "\x05\x00": false} {
		if got, err := readMethods(strings.NewReader(in)); err != nil || got != want {
			t.Errorf("%q: got %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "\x04\x01\x00", "\x05\x03\x00"} {
		if _, err := readMethods(strings.NewReader(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestParseDatagram(t *testing.T) {
	header := AppendDatagramHeader(nil, netip.MustParseAddrPort("[2001:db8::1]:53"))
	to, payload, err := ParseDatagram(append(header, "data"...))
	if err != nil || to.String() != "[2001:db8::1]:53" || string(payload) != "data" {
		t.Errorf("got %v %q, %v", to, payload, err)
	}
	for in, want := range map[string]error{
		"":                         ErrShort,
		"\x00\x00\x00":             ErrShort,
		"\x00\x00\x00\x01\xc0\x00": ErrShort,
		"\x00\x00\x01\x01\xc0\x00\x02\x01\x00\x35": ErrFragment,
		"\x00\x00\x00\x09\xc0\x00\x02\x01\x00\x35": ErrAddressType,
	} {
		if _, _, err := ParseDatagram([]byte(in)); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", in, err, want)
		}
	}
}

func FuzzReadRequest(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50"))
	f.Add([]byte("\x05\x03\x00\x03\x0bexample.com\x00\x35"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		if _, _ = readMethods(r); r.Len() > 0 {
			_, _, _ = ReadRequest(r)
		}
		_, to, err := ReadRequest(bytes.NewReader(data))
		if err == nil && to.Addr.IsValid() == (to.Name != "") {
			t.Fatalf("neither one address nor one name: %+v", to)
		}
	})
}

func FuzzParseDatagram(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\xc0\x00\x02\x01\x00\x35data"))
	f.Add([]byte("\x00\x00\x00\x03\x0bexample.com\x00\x35data"))
	f.Fuzz(func(t *testing.T, data []byte) {
		to, payload, err := ParseDatagram(data)
		if err != nil || to.Name != "" {
			return
		}
		again, payload2, err := ParseDatagram(append(AppendDatagramHeader(nil, netip.AddrPortFrom(to.Addr, to.Port)), payload...))
		if err != nil || again != to || !bytes.Equal(payload, payload2) {
			t.Fatalf("%v %q became %v %q, %v", to, payload, again, payload2, err)
		}
	})
}
