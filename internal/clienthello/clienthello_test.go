package clienthello

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"testing"

	"golang.org/x/crypto/cryptobyte"
)

// said is what a client of crypto/tls says first.
func said(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_ = tls.Client(theirs, config).Handshake()
		theirs.Close()
	}()
	var stream []byte
	for buffer := make([]byte, 1024); ; {
		n, err := ours.Read(buffer)
		stream = append(stream, buffer[:n]...)
		if _, parseErr := Parse(Handshake(stream)); parseErr == nil {
			return stream
		} else if err != nil {
			t.Fatal(err, parseErr)
		}
	}
}

func TestParse(t *testing.T) {
	stream := said(t, &tls.Config{ServerName: "bank.example", NextProtos: []string{"h2", "http/1.1"},
		CurvePreferences: []tls.CurveID{tls.X25519MLKEM768, tls.X25519}})
	handshake := Handshake(stream)
	h, err := Parse(handshake)
	if err != nil {
		t.Fatal(err)
	}
	if h.ServerName != "bank.example" || !slices.Equal(h.Protocols, []string{"h2", "http/1.1"}) || h.Encrypted != NotEncrypted ||
		len(h.Random) != 32 || len(h.SessionID) != 32 {
		t.Errorf("%+v", h)
	}
	if !slices.Equal(h.Versions, []uint16{tls.VersionTLS13, tls.VersionTLS12}) || !slices.Contains(h.CipherSuites, tls.TLS_AES_128_GCM_SHA256) {
		t.Errorf("versions %x, suites %x", h.Versions, h.CipherSuites)
	}
	want := []uint16{uint16(tls.X25519MLKEM768), uint16(tls.X25519)}
	if !slices.Equal(h.Groups, want) || !slices.Equal(h.KeyShares, want) {
		t.Errorf("groups %x, shares %x", h.Groups, h.KeyShares)
	}
	whole := 0
	for _, e := range h.Extensions {
		whole += 4 + len(e.Body)
	}
	if whole == 0 || !bytes.HasSuffix(handshake, h.Extensions[len(h.Extensions)-1].Body) {
		t.Errorf("%d bytes of extensions", whole)
	}
	for n := range handshake {
		if _, err := Parse(handshake[:n]); !errors.Is(err, ErrIncomplete) {
			t.Fatalf("%d of %d bytes: %v", n, len(handshake), err)
		}
	}
}

// A client that encrypts its hello shows the public name.
func TestEncrypted(t *testing.T) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stream := said(t, &tls.Config{ServerName: "secret.example", MinVersion: tls.VersionTLS13,
		EncryptedClientHelloConfigList: echConfigs(key.PublicKey().Bytes(), "public.example")})
	h, err := Parse(Handshake(stream))
	if err != nil || h.ServerName != "public.example" || h.Encrypted != Outer {
		t.Errorf("%q, %v (%v)", h.ServerName, h.Encrypted, err)
	}
	inner := built(t, Extension{EncryptedHello, []byte{1}})
	if h, err := Parse(inner); err != nil || h.Encrypted != Inner {
		t.Errorf("inner: %v (%v)", h.Encrypted, err)
	}
}

// echConfigs is an ECHConfigList (RFC 9849, section 4) with X25519, HKDF-SHA256 and AES-128-GCM.
func echConfigs(public []byte, name string) []byte {
	var b cryptobyte.Builder
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddUint16(EncryptedHello)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			b.AddUint8(1)     // config_id
			b.AddUint16(0x20) // DHKEM(X25519, HKDF-SHA256)
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(public) })
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddUint16(1); b.AddUint16(1) })
			b.AddUint8(32) // maximum_name_length
			b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(name)) })
			b.AddUint16(0)
		})
	})
	return b.BytesOrPanic()
}

// built is a hello with these extensions.
func built(t testing.TB, extensions ...Extension) []byte {
	t.Helper()
	var b cryptobyte.Builder
	b.AddUint8(typeClientHello)
	b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddUint16(tls.VersionTLS12)
		b.AddBytes(make([]byte, 32))
		b.AddUint8(0)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddUint16(tls.TLS_AES_128_GCM_SHA256) })
		b.AddBytes([]byte{1, 0})
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			for _, e := range extensions {
				b.AddUint16(e.Type)
				b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(e.Body) })
			}
		})
	})
	raw, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestMalformed(t *testing.T) {
	name := Extension{ServerName, []byte("\x00\x07\x00\x00\x04bank")}
	for what, c := range map[string]struct {
		raw  []byte
		want error
	}{
		"a ServerHello":                  {[]byte{2, 0, 0, 0}, ErrNone},
		"too long":                       {[]byte{1, 1, 0, 0}, ErrMalformed},
		"empty":                          {[]byte{1, 0, 0, 0}, ErrMalformed},
		"the same extension twice":       {built(t, name, name), ErrMalformed},
		"a name that is cut":             {built(t, Extension{ServerName, name.Body[:6]}), ErrMalformed},
		"a name of another type":         {built(t, Extension{ServerName, []byte("\x00\x07\x01\x00\x04bank")}), ErrMalformed},
		"half a group":                   {built(t, Extension{SupportedGroups, []byte{0, 3, 0, 29, 0}}), ErrMalformed},
		"half a version":                 {built(t, Extension{SupportedVersions, []byte{1, 3}}), ErrMalformed},
		"an empty protocol":              {built(t, Extension{ALPN, []byte{0, 1, 0}}), ErrMalformed},
		"a key share that is cut":        {built(t, Extension{KeyShare, []byte{0, 4, 0, 29, 0, 32}}), ErrMalformed},
		"a third form of ECH":            {built(t, Extension{EncryptedHello, []byte{2}}), ErrMalformed},
		"nothing wrong, of no extension": {built(t), nil},
		"nothing wrong":                  {built(t, name), nil},
	} {
		if _, err := Parse(c.raw); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if h, err := Parse(built(t, name, Extension{ALPN, []byte{9}})); err == nil || h.ServerName != "bank" {
		t.Errorf("what stands before an error is %q (%v)", h.ServerName, err)
	}
	for what, raw := range map[string][]byte{
		"a malformed extension": built(t, Extension{ALPN, []byte{9}}, name),
		"two equal extensions":  built(t, Extension{0x0a0a, nil}, Extension{0x0a0a, nil}, name),
		"bytes behind the last": trailed(built(t, name)),
	} {
		if h, err := Parse(raw); !errors.Is(err, ErrMalformed) || h.ServerName != "bank" {
			t.Errorf("with %s the name is %q (%v)", what, h.ServerName, err)
		}
	}
	if h, err := Parse(built(t)); err != nil || !slices.Equal(h.Versions, []uint16{tls.VersionTLS12}) {
		t.Errorf("without supported_versions: %x (%v)", h.Versions, err)
	}
}

// trailed adds a byte to the message behind its extensions.
func trailed(hello []byte) []byte {
	hello[3]++
	return append(hello, 0)
}

// FuzzParse checks that all that is read lies in the input, and that records cut anywhere change nothing.
func FuzzParse(f *testing.F) {
	f.Add(Handshake(said(f, &tls.Config{ServerName: "bank.example", NextProtos: []string{"h2"}})), uint8(9))
	f.Add(built(f, Extension{EncryptedHello, []byte{1}}), uint8(1))
	f.Add([]byte{1, 0, 0}, uint8(0))
	f.Fuzz(func(t *testing.T, handshake []byte, size uint8) {
		h, err := Parse(handshake)
		if h.ServerName != "" && !bytes.Contains(handshake, []byte(h.ServerName)) {
			t.Errorf("name %q is not in it", h.ServerName)
		}
		if h.ServerName != "" && errors.Is(err, ErrIncomplete) {
			t.Errorf("name %q of a hello that is not whole", h.ServerName)
		}
		total := 0
		for _, e := range h.Extensions {
			total += 4 + len(e.Body)
		}
		if total > len(handshake) {
			t.Errorf("%d bytes of extensions in %d", total, len(handshake))
		}
		var stream []byte
		for rest := handshake; len(rest) > 0; {
			n := min(len(rest), int(size)+1)
			stream = append(append(stream, recordHandshake, 3, 1, byte(n>>8), byte(n)), rest[:n]...)
			rest = rest[n:]
		}
		if got := Handshake(stream); !bytes.Equal(got, handshake) {
			t.Errorf("%d bytes out of records, not %d", len(got), len(handshake))
		}
	})
}
