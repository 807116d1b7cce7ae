package masque

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/quicvarint"

	"heddle/path"
)

// The templates are those of RFC 9298, section 2, and the address that of section 3.4.
func TestTemplates(t *testing.T) {
	four, six := netip.MustParseAddrPort("192.0.2.6:443"), netip.MustParseAddrPort("[2001:db8::42]:443")
	for _, c := range []struct {
		text, host string
		port       uint16
		to         netip.AddrPort
		want       string
	}{
		{"https://example.org", "example.org", 443, four, "https://example.org/.well-known/masque/udp/192.0.2.6/443/"},
		{"https://example.org/", "example.org", 443, six, "https://example.org/.well-known/masque/udp/2001%3Adb8%3A%3A42/443/"},
		{"https://example.org/.well-known/masque/udp/{target_host}/{target_port}/", "example.org", 443, six, "https://example.org/.well-known/masque/udp/2001%3Adb8%3A%3A42/443/"},
		{"https://proxy.example.org:4443/masque?h={target_host}&p={target_port}", "proxy.example.org", 4443, six, "https://proxy.example.org:4443/masque?h=2001%3Adb8%3A%3A42&p=443"},
		{"https://proxy.example.org:4443/masque{?target_host,target_port}", "proxy.example.org", 4443, four, "https://proxy.example.org:4443/masque?target_host=192.0.2.6&target_port=443"},
		{"https://p.example/m?a=b{&target_port,other,target_host}", "p.example", 443, four, "https://p.example/m?a=b&target_port=443&target_host=192.0.2.6"},
		{"https://[2001:db8::1]:8443/{target_host,target_port}{other}", "2001:db8::1", 8443, four, "https://[2001:db8::1]:8443/192.0.2.6,443"},
		{"https://example.org", "example.org", 443, netip.MustParseAddrPort("[::ffff:192.0.2.6]:443"), "https://example.org/.well-known/masque/udp/192.0.2.6/443/"},
	} {
		got, err := ParseTemplate(c.text)
		if err != nil || got.Host != c.host || got.Port != c.port {
			t.Errorf("%s: %+v, %v", c.text, got, err)
			continue
		}
		if expanded := got.Expand(c.to); expanded != c.want {
			t.Errorf("%s: %s, want %s", c.text, expanded, c.want)
		}
	}
}

func TestBadTemplates(t *testing.T) {
	for _, text := range []string{
		"", "http://example.org", "example.org", "https://", "https:///x", "https://user@example.org", "https://example.org:0",
		"https://example.org:", "https://example.org:70000", "https://exa mple.org", "https://example.org/ä{target_host}{target_port}",
		"https://example.org/{target_host}", "https://example.org/{target_port}", "https://example.org/x",
		"https://example.org/{+target_host}/{target_port}", "https://example.org/{#target_host}/{target_port}",
		"https://example.org/{.target_host}/{target_port}", "https://example.org{/target_host,target_port}",
		"https://example.org/{;target_host}/{target_port}", "https://example.org/{target_host:3}/{target_port}",
		"https://example.org/{target_host*}/{target_port}", "https://example.org/{target_host}/{target_port",
		"https://example.org/{target_host}/target_port}", "https://example.org/{}/{target_host}/{target_port}",
		"https://example.org{?target_host,target_port}", "https://{target_host}/{target_port}",
		"https://example..org", "https://example.org/%zz/{target_host}/{target_port}", "https://example.org/" + strings.Repeat("x", maxTemplate),
	} {
		if got, err := ParseTemplate(text); err == nil {
			t.Errorf("%q is taken: %+v", text, got)
		}
	}
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		path, host string
		port       uint16
	}{
		{"/.well-known/masque/udp/192.0.2.6/443/", "192.0.2.6", 443},
		{"/.well-known/masque/udp/2001%3Adb8%3A%3A42/1/", "2001:db8::42", 1},
		{"/.well-known/masque/udp/target.example.com/65535/", "target.example.com", 65535},
	} {
		host, port, err := ParseTarget(c.path)
		if err != nil || host != c.host || port != c.port {
			t.Errorf("%s: %s %d, %v", c.path, host, port, err)
		}
	}
	for _, bad := range []string{
		"", "/", "/.well-known/masque/udp/", "/.well-known/masque/udp/192.0.2.6/443", "/.well-known/masque/udp//443/",
		"/.well-known/masque/udp/192.0.2.6//", "/.well-known/masque/udp/192.0.2.6/0/", "/.well-known/masque/udp/192.0.2.6/65536/",
		"/.well-known/masque/udp/192.0.2.6/+1/", "/.well-known/masque/udp/192.0.2.6/443/x/", "/.well-known/masque/udp/a%2Fb/443/",
		"/.well-known/masque/udp/fe80%3A%3A1%25eth0/443/", "/.well-known/masque/udp/%/443/", "/.well-known/masque/udp/a%00/443/",
		"/.well-known/masque/udp/" + strings.Repeat("a.", 200) + "/443/", "/.well-known/masque/ip/192.0.2.6/443/",
	} {
		if host, port, err := ParseTarget(bad); err == nil {
			t.Errorf("%q is taken: %s %d", bad, host, port)
		}
	}
}

func TestArguments(t *testing.T) {
	pin := strings.Repeat("ab", 32)
	for _, good := range []string{
		"https://p.example", "https://p.example#sha256=" + pin, "https://p.example/{target_host}/{target_port}#sha256=" + pin + "," + pin,
	} {
		for _, base := range []string{"", "@lte"} {
			spec, err := path.ParseSpec("m=masque:" + good + base)
			if err != nil || spec.Arg != good || "@"+spec.Base != "@"+strings.TrimPrefix(base, "@") {
				t.Errorf("%s: %+v, %v", good+base, spec, err)
			}
		}
		if _, err := path.New(path.Spec{Name: "m", Kind: Scheme, Arg: good}, path.Options{}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"p.example", "https://p.example#", "https://p.example#" + pin, "https://p.example#sha256=", "https://p.example#sha256=" + pin[1:],
		"https://p.example#sha256=" + pin + ",", "https://p.example#sha256=" + strings.Repeat("zz", 32)} {
		_, err := path.New(path.Spec{Name: "m", Kind: Scheme, Arg: bad}, path.Options{})
		var e *path.Error
		if !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestAuthorization(t *testing.T) {
	for secret, want := range map[string]string{
		"Aladdin:open sesame": "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", // RFC 7617, section 2
		"mF_9.B5f-4.1JqM":     "Bearer mF_9.B5f-4.1JqM",             // RFC 6750, section 2.1
		"two words":           "",
		"line\r\nbreak":       "",
	} {
		got, ok := authorization(secret)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v", secret, got, ok)
		}
	}
}

func TestDatagrams(t *testing.T) {
	for _, c := range []struct {
		data, want []byte
		fails      bool
	}{
		{[]byte{0, 1, 2}, []byte{1, 2}, false},
		{[]byte{0}, []byte{}, false},
		{[]byte{0x40, 0, 7}, []byte{7}, false}, // the context in two bytes
		{[]byte{2, 1, 2}, nil, false},
		{[]byte{0xc0, 0, 0, 0, 0, 0, 0, 9, 1}, nil, false},
		{nil, nil, true},
		{[]byte{0x40}, nil, true},
		{append([]byte{0}, make([]byte, MaxPayload+1)...), nil, true},
	} {
		got, err := ParseDatagram(c.data)
		if (err != nil) != c.fails || !bytes.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%x: %x, %v", c.data[:min(len(c.data), 16)], got, err)
		}
	}
}

// capsule is one as it stands on the stream.
func capsule(kind, length uint64, value []byte) []byte {
	return append(quicvarint.Append(quicvarint.Append(nil, kind), length), value...)
}

func TestCapsules(t *testing.T) {
	stream := bytes.Join([][]byte{
		capsule(0x2843, 3, []byte("abc")), // a type that nobody knows
		capsule(0, 2, []byte{0, 1}), capsule(1<<40, 0, nil), capsule(0, 3, []byte{2, 8, 8}), capsule(0, 1, []byte{0}),
	}, nil)
	var got [][]byte
	take := func(d []byte) error { got = append(got, d); return nil }
	if err := ReadCapsules(bytes.NewReader(stream), take); err != nil || fmt.Sprint(got) != "[[0 1] [2 8 8] [0]]" {
		t.Errorf("%v, %v", got, err)
	}
	for name, bad := range map[string][]byte{
		"truncated value":   capsule(0, 9, []byte("short")),
		"truncated unknown": capsule(9, 9, []byte("short")),
		"no length":         {0},
		"half a type":       {0x40},
		"too long":          capsule(0, MaxPayload+9, make([]byte, MaxPayload+9)),
		"absurdly long":     capsule(0, 1<<61, nil),
	} {
		if err := ReadCapsules(bytes.NewReader(bad), func([]byte) error { return nil }); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	enough := errors.New("enough")
	if err := ReadCapsules(bytes.NewReader(stream), func([]byte) error { return enough }); err != enough {
		t.Errorf("%v", err)
	}
}

func FuzzParseTemplate(f *testing.F) {
	f.Add("https://proxy.example.org:4443/masque{?target_host,target_port}", "2001:db8::42", uint16(443))
	f.Add("https://example.org/{target_host}/{target_port}", "192.0.2.6", uint16(1))
	f.Fuzz(func(t *testing.T, text, addr string, port uint16) {
		template, err := ParseTemplate(text)
		to, addrErr := netip.ParseAddr(addr)
		if err != nil || addrErr != nil {
			return
		}
		expanded := template.Expand(netip.AddrPortFrom(to, port))
		if strings.ContainsAny(expanded, "{}# \r\n") {
			t.Errorf("%q gives %q", text, expanded)
		}
		if u, err := url.Parse(expanded); err != nil || u.Host != template.Authority {
			t.Errorf("%q: the request would go to %q, not to %q: %v", text, u.Host, template.Authority, err)
		}
	})
}

func FuzzParseTarget(f *testing.F) {
	f.Add("/.well-known/masque/udp/2001%3Adb8%3A%3A42/443/")
	f.Add("/.well-known/masque/udp/target.example.com/53/")
	f.Fuzz(func(t *testing.T, text string) {
		host, port, err := ParseTarget(text)
		if err != nil {
			return
		}
		if port == 0 || host == "" || len(host) > maxHost || strings.ContainsAny(host, "/%\x00 []") {
			t.Errorf("%q: %q %d", text, host, port)
		}
	})
}

func FuzzCapsules(f *testing.F) {
	f.Add(capsule(0, 2, []byte{0, 1}))
	f.Add(capsule(0x2843, 3, []byte("abc")))
	f.Add(capsule(0, 1<<61, nil))
	f.Fuzz(func(t *testing.T, stream []byte) {
		total := 0
		_ = ReadCapsules(bytes.NewReader(stream), func(d []byte) error {
			total += len(d)
			payload, err := ParseDatagram(d)
			if err == nil && payload != nil && !bytes.HasSuffix(d, payload) {
				t.Errorf("%x: %x", d, payload)
			}
			return err
		})
		if total > len(stream) {
			t.Errorf("%d bytes out of %d", total, len(stream))
		}
	})
}
