package inspect

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestExemption(t *testing.T) {
	cipher := make([]byte, 500)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(cipher)
	cipher[0] = 0xff
	with := func(at int, text string) []byte {
		b := bytes.Clone(cipher)
		copy(b[at:], text)
		return b
	}
	for _, c := range []struct {
		name  string
		first []byte
		want  string
	}{
		{"nothing", nil, "empty"},
		{"ciphertext", cipher, ""},
		{"zeros", make([]byte, 100), "few set bits"},
		{"ones", bytes.Repeat([]byte{0xff}, 100), "many set bits"},
		{"six printable bytes", with(0, "a b~c!"), "printable start"},
		{"five printable bytes", with(0, "a b~c\x80"), ""},
		{"just three", append([]byte("abc"), 0xff, 0xff, 0x00, 0x01), ""},
		{"text", append([]byte{0xff}, bytes.Repeat([]byte("gA"), 30)...), "mostly printable"},
		{"21 printable bytes", with(100, "\x80abcdefghijklmnopqrstu\x80"), "printable run"},
		{"20 printable bytes", with(100, "\x80abcdefghijklmnopqrst\x80"), ""},
		{"TLS", with(0, "\x16\x03\x01"), "TLS"},
		{"no TLS", with(0, "\x16\x03\x0a"), ""},
		{"HTTP", with(0, "GET \x80"), "HTTP"},
		{"no HTTP", with(0, "BREW\x80"), ""},
	} {
		if got := Exemption(c.first); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
