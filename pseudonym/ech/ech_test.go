package ech

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"

	"heddle/internal/clienthello"
)

const public = "store.cloud.example"

func newKey(t testing.TB, id uint8) *Key {
	t.Helper()
	k, err := NewKey(id, public, 40)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// said is the first hello of a client of crypto/tls, with its handshake header.
func said(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_ = tls.Client(theirs, config).Handshake()
		theirs.Close()
	}()
	_ = ours.SetReadDeadline(time.Now().Add(time.Minute))
	var stream []byte
	for b := make([]byte, 4096); ; {
		n, err := ours.Read(b)
		if stream = append(stream, b[:n]...); err != nil {
			t.Fatal(err)
		}
		if handshake, _, err := clienthello.Split(stream); err == nil {
			return handshake
		}
	}
}

func config(k *Key) *tls.Config {
	return &tls.Config{ServerName: "secret.cloud.example", NextProtos: []string{"h2"}, EncryptedClientHelloConfigList: List(k.Config())}
}

func TestOpen(t *testing.T) {
	old, k := newKey(t, 1), newKey(t, 1)
	raw := said(t, config(k))
	if bytes.Contains(raw, []byte("secret")) || !bytes.Contains(raw, []byte(public)) {
		t.Error("the name is in clear")
	}
	o, err := Open([]*Key{newKey(t, 2), old, k}, raw) // of two keys with one identifier the right one
	if err != nil || o.Name != "secret.cloud.example" {
		t.Fatalf("%+v, %v", o, err)
	}
	if h, err := clienthello.Parse(o.Hello); err != nil || h.Encrypted != clienthello.Inner || !slices.Equal(h.Protocols, []string{"h2"}) {
		t.Errorf("%+v, %v", h, err)
	}
	// As it is kept and read again.
	private, err := k.Private()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := ParseKey(k.Config(), private)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := Open([]*Key{kept}, raw); err != nil || o.Name != "secret.cloud.example" {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := ParseKey(old.Config(), private); err == nil {
		t.Error("a key with the configuration of another")
	}
	for name, c := range map[string]struct {
		keys []*Key
		raw  []byte
	}{
		"without keys":     {nil, raw},
		"by an old key":    {[]*Key{old}, raw},
		"not encrypted":    {[]*Key{k}, said(t, &tls.Config{ServerName: "secret.cloud.example"})},
		"an inner hello":   {[]*Key{k}, o.Hello},
		"a changed byte":   {[]*Key{k}, changed(raw, 40)}, // of the session identifier, which is in the additional data
		"a changed cipher": {[]*Key{k}, changed(raw, bytes.Index(raw, List(k.Config())[2:4])+6)},
	} {
		if o, err := Open(c.keys, c.raw); !errors.Is(err, ErrNotOpened) || o != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open([]*Key{k}, raw[:100]); !errors.Is(err, clienthello.ErrIncomplete) {
		t.Errorf("a cut hello: %v", err)
	}
}

func changed(raw []byte, at int) []byte {
	raw = bytes.Clone(raw)
	raw[at] ^= 1
	return raw
}

// client seals hellos that no client of crypto/tls would send.
type client struct {
	t      testing.TB
	k      *Key
	enc    []byte
	sender *hpke.Sender
}

func newClient(t testing.TB, k *Key) *client {
	t.Helper()
	to, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(k.private.PublicKey().Bytes())
	if err != nil {
		t.Fatal(err)
	}
	enc, sender, err := hpke.NewSender(to, hpke.HKDFSHA256(), hpke.AES128GCM(), append([]byte("tls ech\x00"), k.Config()...))
	if err != nil {
		t.Fatal(err)
	}
	return &client{t, k, enc, sender}
}

func hello(extensions ...clienthello.Extension) []byte {
	var b cryptobyte.Builder
	b.AddUint8(1)
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
	return b.BytesOrPanic()
}

// inner is an encoded inner hello for a name.
func inner(name string, more ...clienthello.Extension) []byte {
	var b cryptobyte.Builder
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddUint8(0)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(name)) })
	})
	return hello(append([]clienthello.Extension{{Type: clienthello.ServerName, Body: b.BytesOrPanic()}, {Type: clienthello.EncryptedHello, Body: []byte{1}},
		{Type: clienthello.SupportedVersions, Body: []byte{2, 3, 4}}}, more...)...)[4:]
}

// outer is an outer hello.
func (c *client) outer(id uint8, aead uint16, enc, encoded []byte) []byte {
	with := func(payload []byte) []byte {
		var b cryptobyte.Builder
		b.AddUint8(0)
		b.AddUint16(kdfSHA256)
		b.AddUint16(aead)
		b.AddUint8(id)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(enc) })
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(payload) })
		return hello(clienthello.Extension{Type: clienthello.EncryptedHello, Body: b.BytesOrPanic()})
	}
	payload, err := c.sender.Seal(with(make([]byte, len(encoded)+16))[4:], encoded)
	if err != nil {
		c.t.Fatal(err)
	}
	return with(payload)
}

// What a client may send after a HelloRetryRequest, and what it may not (RFC 9849, section 7.1.1).
func TestAgain(t *testing.T) {
	k := newKey(t, 7)
	group := clienthello.Extension{Type: clienthello.SupportedGroups, Body: []byte{0, 2, 0, 23}}
	for name, c := range map[string]struct {
		second func(*client) []byte
		alert  uint8 // 0 is none
	}{
		"another group": {func(c *client) []byte { return c.outer(7, aeadAES128, nil, inner("a.example", group)) }, 0},
		"in clear": {func(*client) []byte {
			return hello(clienthello.Extension{Type: clienthello.SupportedVersions, Body: []byte{2, 3, 4}})
		}, alertMissingExtension},
		"an inner one": {func(*client) []byte {
			return append([]byte{1, 0, 0, byte(len(inner("a.example")))}, inner("a.example")...)
		}, alertIllegalParameter},
		"for another key":   {func(c *client) []byte { return c.outer(8, aeadAES128, nil, inner("a.example")) }, alertIllegalParameter},
		"by another cipher": {func(c *client) []byte { return c.outer(7, aeadChaCha20, nil, inner("a.example")) }, alertIllegalParameter},
		"with a key again":  {func(c *client) []byte { return c.outer(7, aeadAES128, c.enc, inner("a.example")) }, alertIllegalParameter},
		"out of order": {func(c *client) []byte {
			c.outer(7, 1, nil, nil)
			return c.outer(7, aeadAES128, nil, inner("a.example"))
		}, alertDecryptError},
		"for another name": {func(c *client) []byte { return c.outer(7, aeadAES128, nil, inner("b.example")) }, alertIllegalParameter},
		"malformed inside": {func(c *client) []byte { return c.outer(7, aeadAES128, nil, []byte("hello")) }, alertIllegalParameter},
	} {
		one := newClient(t, k)
		o, err := Open([]*Key{k}, one.outer(7, aeadAES128, one.enc, inner("a.example")))
		if err != nil || o.Name != "a.example" {
			t.Fatalf("%v, %v", o, err)
		}
		err = o.Again(c.second(one))
		var alert *Alert
		if errors.As(err, &alert); c.alert == 0 && err != nil || c.alert != 0 && (alert == nil || alert.Code != c.alert) {
			t.Errorf("%s: %v", name, err)
		}
		if h, bad := clienthello.Parse(o.Hello); err == nil && (bad != nil || !slices.Equal(h.Groups, []uint16{23})) {
			t.Errorf("%s: the first hello is still there: %+v", name, h)
		}
	}
	one := newClient(t, k)
	var alert *Alert
	if _, err := Open([]*Key{k}, one.outer(7, aeadAES128, one.enc, []byte("hello"))); !errors.As(err, &alert) || alert.Code != alertIllegalParameter {
		t.Errorf("malformed inside: %v", err)
	}
	if record := alert.Record(); !bytes.Equal(record, []byte{21, 3, 3, 0, 2, 2, 47}) {
		t.Errorf("the alert is %x", record)
	}
}

// A client is told to what length it pads names. The one of crypto/tls in Go 1.26 pads to multiples of 32 bytes only.
func TestConfig(t *testing.T) {
	want := append([]byte{40, byte(len(public))}, public...)
	if c := newKey(t, 1).Config(); !bytes.Contains(c, want) || len(List(c, c)) != 2+2*len(c) {
		t.Errorf("%x", c)
	}
	if k, err := NewKey(1, public, 300); err != nil || !bytes.Contains(k.Config(), append([]byte{255, byte(len(public))}, public...)) {
		t.Errorf("a long zone: %v", err)
	}
}

func BenchmarkOpen(b *testing.B) {
	k := newKey(b, 1)
	raw := said(b, config(k))
	for b.Loop() {
		if _, err := Open([]*Key{k}, raw); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzOpen mutates and cuts hellos.
func FuzzOpen(f *testing.F) {
	k := newKey(f, 7)
	one := newClient(f, k)
	first := one.outer(7, aeadAES128, one.enc, inner("a.example"))
	f.Add(first, one.outer(7, aeadAES128, nil, inner("a.example")))
	f.Add(said(f, config(k)), []byte{1, 0, 0})
	f.Fuzz(func(t *testing.T, raw, second []byte) {
		keys := []*Key{k}
		if o, err := Open(keys, raw); err == nil {
			if _, err := clienthello.Parse(o.Hello); err != nil {
				t.Error(err)
			}
		}
		o, err := Open(keys, first)
		if err != nil {
			t.Fatal(err)
		}
		if o.Again(second) == nil && o.Name != "a.example" {
			t.Errorf("another name: %q", o.Name)
		}
	})
}
