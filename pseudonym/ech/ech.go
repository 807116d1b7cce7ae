// Package ech opens encrypted ClientHellos (RFC 9849) for a gateway that stands before other servers: the server behind it gets the
// inner hello, and needs no key. The name that a client asks for is then not on the wire.
package ech

import (
	"crypto/ecdh"
	"crypto/hpke"
	"errors"
	"fmt"

	"golang.org/x/crypto/cryptobyte"

	"heddle/internal/clienthello"
)

// Key opens hellos that were encrypted to its configuration. It is safe for concurrent use.
type Key struct {
	config  []byte
	id      uint8
	private hpke.PrivateKey
}

const (
	kemX25519    = 0x20 // RFC 9180, section 7
	kdfSHA256    = 1
	aeadAES128   = 1
	aeadChaCha20 = 3
	mostName     = 255 // bytes that a configuration can ask a client to pad names to
)

// NewKey makes a key. Its configuration has an identifier, the public name, which is in clear in the outer hello, and the length of the
// longest name that a client may ask for, to which clients pad all.
func NewKey(id uint8, public string, longest int) (*Key, error) {
	private, err := hpke.DHKEM(ecdh.X25519()).GenerateKey()
	if err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddUint16(clienthello.EncryptedHello)
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddUint8(id)
		b.AddUint16(kemX25519)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(private.PublicKey().Bytes()) })
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			for _, aead := range []uint16{aeadAES128, aeadChaCha20} {
				b.AddUint16(kdfSHA256)
				b.AddUint16(aead)
			}
		})
		b.AddUint8(uint8(min(longest, mostName)))
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(public)) })
		b.AddUint16(0) // extensions
	})
	config, err := b.Bytes()
	return &Key{config, id, private}, err
}

// Config returns the configuration, an ECHConfig of RFC 9849, section 4.
func (k *Key) Config() []byte { return k.config }

// Private returns the private key for [ParseKey].
func (k *Key) Private() ([]byte, error) { return k.private.Bytes() }

// ParseKey reads what [Key.Config] and [Key.Private] returned.
func ParseKey(config, private []byte) (*Key, error) {
	s := cryptobyte.String(config)
	var id uint8
	var kem uint16
	var public cryptobyte.String
	if !s.Skip(4) || !s.ReadUint8(&id) || !s.ReadUint16(&kem) || kem != kemX25519 || !s.ReadUint16LengthPrefixed(&public) {
		return nil, errors.New("the configuration of a key of hellos is damaged")
	}
	key, err := hpke.DHKEM(ecdh.X25519()).NewPrivateKey(private)
	if err != nil {
		return nil, err
	}
	if string(key.PublicKey().Bytes()) != string(public) {
		return nil, errors.New("a key of hellos is not that of its configuration")
	}
	return &Key{config, id, key}, nil
}

// List joins configurations, the first one preferred, for an HTTPS record or a client (ECHConfigList).
func List(configs ...[]byte) []byte {
	var b cryptobyte.Builder
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, config := range configs {
			b.AddBytes(config)
		}
	})
	return b.BytesOrPanic()
}

// ErrNotOpened says that the outer hello is what the client wants a server to answer: it has no inner one (or a random text in place of
// it, as clients do so that inner ones do not stand out), or one for a key that is not here.
var ErrNotOpened = errors.New("no key opens an inner hello")

// Alert is why a client that has our configuration is refused, with the TLS alert that tells it (RFC 8446, section 6).
type Alert struct {
	Code uint8
	why  string
}

// Alerts of RFC 8446, section 6.2.
const (
	alertIllegalParameter = 47
	alertDecryptError     = 51
	alertMissingExtension = 109
)

func (a *Alert) Error() string { return "an encrypted ClientHello: " + a.why }

// Record returns the alert as a TLS record.
func (a *Alert) Record() []byte { return []byte{21, 3, 3, 0, 2, 2, a.Code} }

// Opened is an inner hello.
type Opened struct {
	Hello     []byte // with its handshake header
	Name      string // the server's
	id        uint8
	kdf, aead uint16
	context   *hpke.Recipient
}

// Open opens the first hello of a client, with its handshake header. It fails with [ErrNotOpened], with an [Alert], or as
// [clienthello.Parse] does.
func Open(keys []*Key, handshake []byte) (*Opened, error) {
	outer, err := clienthello.Parse(handshake)
	if err != nil {
		return nil, err
	}
	sealed, ok := outer.Sealed(handshake)
	if !ok {
		return nil, ErrNotOpened // a server behind the gateway judges it
	}
	for _, k := range keys {
		if k.id != sealed.Config {
			continue
		}
		context, encoded, err := k.open(sealed)
		if err != nil {
			continue
		}
		o := &Opened{id: sealed.Config, kdf: sealed.KDF, aead: sealed.AEAD, context: context}
		if err := o.take(outer, encoded); err != nil {
			return nil, err
		}
		return o, nil
	}
	return nil, ErrNotOpened
}

// open decrypts by one key. Anybody may choose the identifier of a key at random.
func (k *Key) open(s clienthello.Sealed) (*hpke.Recipient, []byte, error) {
	kdf, err := hpke.NewKDF(s.KDF)
	if err != nil {
		return nil, nil, err
	}
	aead, err := hpke.NewAEAD(s.AEAD)
	if err != nil {
		return nil, nil, err
	}
	if s.KDF != kdfSHA256 || s.AEAD != aeadAES128 && s.AEAD != aeadChaCha20 {
		return nil, nil, fmt.Errorf("the configuration does not offer %d with %d", s.KDF, s.AEAD)
	}
	context, err := hpke.NewRecipient(s.Key, k.private, kdf, aead, append([]byte("tls ech\x00"), k.config...))
	if err != nil {
		return nil, nil, err
	}
	encoded, err := context.Open(s.AAD, s.Payload)
	return context, encoded, err
}

// take rebuilds the inner hello.
func (o *Opened) take(outer clienthello.Hello, encoded []byte) error {
	handshake, inner, err := clienthello.DecodeInner(outer, encoded)
	if err != nil {
		return &Alert{alertIllegalParameter, "the inner one is malformed"}
	}
	o.Hello, o.Name = handshake, inner.ServerName
	return nil
}

// Again opens the hello by which the client answers a HelloRetryRequest, and replaces the first one (RFC 9849, section 7.1.1). It fails
// with an [Alert], or as [clienthello.Parse] does.
func (o *Opened) Again(handshake []byte) error {
	outer, err := clienthello.Parse(handshake)
	if err != nil {
		return err
	}
	s, ok := outer.Sealed(handshake)
	switch {
	case outer.Encrypted == clienthello.NotEncrypted:
		return &Alert{alertMissingExtension, "the second one is in clear"}
	case !ok || s.Config != o.id || s.KDF != o.kdf || s.AEAD != o.aead || len(s.Key) > 0:
		return &Alert{alertIllegalParameter, "the second one is for another key than the first"}
	}
	encoded, err := o.context.Open(s.AAD, s.Payload)
	if err != nil {
		return &Alert{alertDecryptError, "the second one cannot be decrypted"}
	}
	name := o.Name
	if err := o.take(outer, encoded); err != nil {
		return err
	}
	if o.Name != name {
		return &Alert{alertIllegalParameter, "the second one is for another server than the first"}
	}
	return nil
}
