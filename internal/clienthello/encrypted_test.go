package clienthello

import (
	"bytes"
	"crypto/tls"
	"errors"
	"slices"
	"testing"

	"golang.org/x/crypto/cryptobyte"
)

var (
	versions13  = Extension{SupportedVersions, []byte{2, 3, 4}}
	marked      = Extension{EncryptedHello, []byte{encryptedHelloInner}}
	bank        = Extension{ServerName, []byte("\x00\x07\x00\x00\x04bank")}
	groups      = Extension{SupportedGroups, []byte{0, 2, 0, 29}}
	unknown     = Extension{0x1234, bytes.Repeat([]byte{7}, 100)}
	commonOuter = []Extension{groups, unknown, {SupportedVersions, []byte{4, 3, 4, 3, 3}}}
)

// encoded is an encoded inner hello with some extensions (RFC 9849, section 5.1).
func encoded(t testing.TB, padding int, extensions ...Extension) []byte {
	t.Helper()
	return append(built(t, extensions...)[helloHeader:], make([]byte, padding)...)
}

// common stands for extensions of the outer hello.
func common(kinds ...uint16) Extension {
	var b cryptobyte.Builder
	b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, kind := range kinds {
			b.AddUint16(kind)
		}
	})
	return Extension{OuterExtensions, b.BytesOrPanic()}
}

func TestDecodeInner(t *testing.T) {
	outer := Hello{SessionID: []byte("session"), Extensions: commonOuter}
	handshake, h, err := DecodeInner(outer, encoded(t, 30, bank, common(SupportedGroups, 0x1234), marked, versions13))
	if err != nil {
		t.Fatal(err)
	}
	want := []Extension{bank, groups, unknown, marked, versions13}
	same := func(a, b Extension) bool { return a.Type == b.Type && bytes.Equal(a.Body, b.Body) }
	if h.ServerName != "bank" || string(h.SessionID) != "session" || !slices.EqualFunc(h.Extensions, want, same) {
		t.Errorf("%+v", h)
	}
	if again, err := Parse(handshake); err != nil || again.ServerName != "bank" {
		t.Errorf("%+v, %v", again, err)
	}

	padded := encoded(t, 30, bank, marked, versions13)
	padded[len(padded)-1] = 1
	session := encoded(t, 0, bank, marked, versions13)
	session[2+32] = 1
	for what, bad := range map[string][]byte{
		"nothing":                        nil,
		"a cut one":                      encoded(t, 0, bank, marked, versions13)[:60],
		"padding that is not zero":       padded,
		"a session of its own":           session,
		"no mark of an inner hello":      encoded(t, 0, bank, versions13),
		"the mark of an outer hello":     encoded(t, 0, bank, versions13, Extension{EncryptedHello, []byte{0}}),
		"a longer mark":                  encoded(t, 0, bank, versions13, Extension{EncryptedHello, []byte{1, 0}}),
		"the mark elsewhere":             encoded(t, 0, Extension{0x1234, []byte{1}}, bank, versions13),
		"TLS 1.2 too":                    encoded(t, 0, bank, marked, commonOuter[2]),
		"no TLS 1.3":                     encoded(t, 0, bank, marked),
		"common extensions twice":        encoded(t, 0, marked, versions13, common(SupportedGroups), common(0x1234)),
		"one of them twice":              encoded(t, 0, marked, versions13, common(SupportedGroups, SupportedGroups)),
		"in another order":               encoded(t, 0, marked, versions13, common(0x1234, SupportedGroups)),
		"one that the outer has not":     encoded(t, 0, marked, versions13, common(ALPN)),
		"the encrypted hello":            encoded(t, 0, marked, versions13, common(EncryptedHello)),
		"none":                           encoded(t, 0, marked, versions13, common()),
		"one that is here too":           encoded(t, 0, groups, marked, versions13, common(SupportedGroups)),
		"half a number":                  encoded(t, 0, marked, versions13, Extension{OuterExtensions, []byte{1, 0}}),
		"bytes behind the list of those": encoded(t, 0, marked, versions13, Extension{OuterExtensions, []byte{2, 0, 10, 0}}),
	} {
		outer := outer
		outer.Extensions = append(slices.Clone(commonOuter), Extension{EncryptedHello, []byte{0}})
		if handshake, _, err := DecodeInner(outer, bad); !errors.Is(err, ErrMalformed) || handshake != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	grease := Extension{SupportedVersions, []byte{4, 0x1a, 0x1a, 3, 4}}
	if _, _, err := DecodeInner(outer, encoded(t, 0, bank, marked, grease)); err != nil {
		t.Errorf("a version that stands for nothing: %v", err)
	}
}

// outerExtension is the extension of an outer hello.
func outerExtension(key, payload []byte) Extension {
	var b cryptobyte.Builder
	b.AddUint8(0)
	b.AddUint16(1)
	b.AddUint16(3)
	b.AddUint8(9)
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(key) })
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(payload) })
	return Extension{EncryptedHello, b.BytesOrPanic()}
}

func TestSealed(t *testing.T) {
	// The same bytes stand elsewhere too: only those of the extension are zero.
	payload := bytes.Repeat([]byte{7}, 20)
	raw := built(t, unknown, outerExtension([]byte("key"), payload), bank)
	h, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := h.Sealed(raw)
	want := built(t, unknown, outerExtension([]byte("key"), make([]byte, 20)), bank)[helloHeader:]
	if !ok || s.KDF != 1 || s.AEAD != 3 || s.Config != 9 || string(s.Key) != "key" || !bytes.Equal(s.Payload, payload) || !bytes.Equal(s.AAD, want) {
		t.Errorf("%+v, %v", s, ok)
	}
	for what, e := range map[string]Extension{
		"an inner hello": marked,
		"no payload":     outerExtension([]byte("key"), nil),
		"a cut one":      {EncryptedHello, outerExtension([]byte("key"), payload).Body[:20]},
		"a longer one":   {EncryptedHello, append(outerExtension([]byte("key"), payload).Body, 0)},
		"another":        unknown,
	} {
		raw := built(t, e)
		h, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := h.Sealed(raw); ok {
			t.Errorf("%s is sealed", what)
		}
	}
}

func TestSplit(t *testing.T) {
	handshake := built(t, bank)
	stream := append(Records(handshake), "rest"...)
	if got, rest, err := Split(stream); err != nil || !bytes.Equal(got, handshake) || string(rest) != "rest" {
		t.Errorf("%d bytes, %q, %v", len(got), rest, err)
	}
	for n := range Records(handshake) {
		if _, _, err := Split(stream[:n]); !errors.Is(err, ErrIncomplete) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	two := append([]byte{recordHandshake, 3, 1, 0, 10}, handshake[:10]...)
	two = append(two, Records(handshake[10:])...)
	if got, rest, err := Split(two); err != nil || !bytes.Equal(got, handshake) || len(rest) > 0 {
		t.Errorf("two records: %d bytes, %q, %v", len(got), rest, err)
	}
	large := append([]byte{typeClientHello, 0, 0x40, 0}, make([]byte, Limit)...)
	if got, _, err := Split(Records(large)); err != nil || len(got) != len(large) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for what, bad := range map[string][]byte{
		"another message in the record": Records(append(slices.Clone(handshake), 0)),
		"another record":                append([]byte{recordHandshake, 3, 1, 0, 1, typeClientHello, 23}, 3, 1, 0, 0),
		"too long":                      Records([]byte{typeClientHello, 1, 0, 0}),
	} {
		if _, _, err := Split(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzDecodeInner checks that a hello that is decoded is a good one, and is not larger than what it came from.
func FuzzDecodeInner(f *testing.F) {
	outer := Handshake(said(f, &tls.Config{ServerName: "bank.example", NextProtos: []string{"h2"}}))
	f.Add(outer, encoded(f, 9, bank, common(SupportedGroups, ALPN), marked, versions13))
	f.Add(built(f, commonOuter...), encoded(f, 0, bank, marked, versions13))
	f.Fuzz(func(t *testing.T, outer, inner []byte) {
		o, err := Parse(outer)
		if err != nil {
			return
		}
		o.Sealed(outer)
		handshake, h, err := DecodeInner(o, inner)
		if err != nil {
			return
		}
		if h.Encrypted != Inner || len(handshake) > len(outer)+len(inner) {
			t.Errorf("%d bytes of %d and %d: %+v", len(handshake), len(outer), len(inner), h)
		}
		if again, rest, err := Split(Records(handshake)); err != nil || len(rest) > 0 || !bytes.Equal(again, handshake) {
			t.Errorf("records: %v", err)
		}
	})
}
