package socks5

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
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

func TestNegotiate(t *testing.T) {
	full := strings.Repeat("k=v;", 64)[:255]
	var got []string
	note := func(user, password string) error {
		got = append(got, user, password)
		if password == "wrong" {
			return errors.New("wrong")
		}
		return nil
	}
	login := func(user, password string) string {
		return "\x05\x02\x00\x02\x01" + string(rune(len(user))) + user + string(rune(len(password))) + password
	}
	for name, test := range map[string]struct {
		in     string
		auth   Auth
		ok     bool
		answer string
		want   []string // what Password was asked
	}{
		"plain":                 {"\x05\x01\x00", Auth{}, true, "\x05\x00", nil},
		"plain, of two":         {"\x05\x02\x02\x00", Auth{}, true, "\x05\x00", nil},
		"no method":             {"\x05\x00", Auth{}, false, "\x05\xff", nil},
		"only a password":       {"\x05\x01\x02", Auth{}, false, "\x05\xff", nil},
		"a password is wanted":  {"\x05\x01\x00", Auth{Password: note}, false, "\x05\xff", nil},
		"it is optional":        {"\x05\x01\x00", Auth{Password: note, Optional: true}, true, "\x05\x00", nil},
		"optional, and shown":   {login("anna", "secret"), Auth{Password: note, Optional: true}, true, "\x05\x02\x01\x00", []string{"anna", "secret"}},
		"right":                 {login("anna", "secret"), Auth{Password: note}, true, "\x05\x02\x01\x00", []string{"anna", "secret"}},
		"wrong":                 {login("anna", "wrong"), Auth{Password: note}, false, "\x05\x02\x01\x01", []string{"anna", "wrong"}},
		"arguments":             {"\x05\x01\x02\x01\xff" + full + "\xff" + full, Auth{Password: note}, true, "\x05\x02\x01\x00", []string{full, full}},
		"arguments in the user": {login("k=v", "\x00"), Auth{Password: note}, true, "\x05\x02\x01\x00", []string{"k=v", "\x00"}},
		"nothing shown":         {login("", ""), Auth{Password: note}, true, "\x05\x02\x01\x00", []string{"", ""}},
	} {
		got = nil
		var answer bytes.Buffer
		ok, err := Negotiate(strings.NewReader(test.in), &answer, test.auth)
		if err != nil || ok != test.ok || answer.String() != test.answer || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %v, answered %q, asked for %q", name, ok, err, &answer, got)
		}
	}
	for _, in := range []string{"", "\x04\x01\x00", "\x05\x03\x00", "\x05\x01\x02", "\x05\x01\x02\x02\x01a\x01b", "\x05\x01\x02\x01\x04ann", "\x05\x01\x02\x01\x01a"} {
		if ok, err := Negotiate(strings.NewReader(in), io.Discard, Auth{Password: note}); ok || err == nil {
			t.Errorf("%q: %v, no error", in, ok)
		}
	}
}

// What a client says is what the server hears, and the other way round.
func TestBothSides(t *testing.T) {
	name, err := NewTarget("web.example", 443)
	if err != nil {
		t.Fatal(err)
	}
	secret := &Credentials{"anna", "a:b c\x00"}
	for _, test := range []struct {
		with *Credentials
		auth Auth
		want error
	}{
		{nil, Auth{}, nil},
		{secret, Auth{}, nil},
		{secret, Auth{Password: func(user, password string) error {
			if (Credentials{user, password}) != *secret {
				return ErrPassword
			}
			return nil
		}}, nil},
		{secret, Auth{Password: func(string, string) error { return errors.New("no") }}, ErrPassword},
		{nil, Auth{Password: func(string, string) error { return nil }}, ErrWantsUser},
	} {
		ours, theirs := net.Pipe()
		heard := make(chan Target, 1)
		go func() {
			defer close(heard)
			defer theirs.Close()
			if ok, err := Negotiate(theirs, theirs, test.auth); !ok || err != nil {
				return
			}
			if _, to, err := ReadRequest(theirs); err == nil {
				heard <- to
				WriteReply(theirs, Succeeded, netip.MustParseAddrPort("[2001:db8::1]:9"))
			}
		}()
		err := Greet(ours, test.with)
		if !errors.Is(err, test.want) {
			t.Errorf("%v: %v, want %v", test.with, err, test.want)
		}
		if err == nil {
			bound, err := Request(ours, Connect, name)
			if to := <-heard; err != nil || to != name || bound.String() != "[2001:db8::1]:9" {
				t.Errorf("asked for %v, answered %v, %v", to, bound, err)
			}
		}
		ours.Close()
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
	f.Add([]byte("\x05\x01\x02\x01\x04anna\x01\x00\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		if _, _ = Negotiate(r, io.Discard, Auth{Password: func(string, string) error { return nil }}); r.Len() > 0 {
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
