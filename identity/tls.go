package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// KeyError is a peer that proved another key than the one it should hold.
type KeyError struct{ Want, Got Key }

// Error names both keys.
func (e *KeyError) Error() string {
	return fmt.Sprintf("it holds the key %v, and not %v, which is expected there", e.Got, e.Want)
}

// HintText says what that means.
func (e *KeyError) HintText() string {
	return "somebody else answers at this address, or its owner made a new key: ask them"
}

// Client gives the settings of TLS 1.3 connections to a server that proves a key; protocol is spoken inside (ALPN, RFC 7301).
func (id Identity) Client(server Key, protocol string) (*tls.Config, error) {
	c, err := id.config(protocol, func(got Key) error {
		if got != server {
			return &KeyError{Want: server, Got: got}
		}
		return nil
	})
	if err == nil {
		// The server is told apart by its key alone; crypto/tls checks names and chains only without this.
		c.InsecureSkipVerify = true
	}
	return c, err
}

// Server gives the settings of TLS 1.3 connections in which this side proves id, and accept says whether a client may
// come in. What a client proved is read later by [PeerKey]. The protocols are what may be spoken inside (ALPN).
func (id Identity) Server(accept func(client Key) error, protocols ...string) (*tls.Config, error) {
	c, err := id.config("", accept)
	if err == nil {
		c.NextProtos, c.ClientAuth = protocols, tls.RequireAnyClientCert
	}
	return c, err
}

func (id Identity) config(protocol string, accept func(Key) error) (*tls.Config, error) {
	if id.IsZero() {
		return nil, errors.New("there is no identity to prove")
	}
	certificate, err := id.certificate()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{certificate},
		NextProtos:   []string{protocol},
		// Unlike VerifyPeerCertificate, this is asked at a resumed session too.
		VerifyConnection: func(state tls.ConnectionState) error {
			key, err := PeerKey(state)
			if err != nil {
				return err
			}
			return accept(key)
		},
	}, nil
}

// PeerKey gives the key that the other side proved.
func PeerKey(state tls.ConnectionState) (Key, error) {
	if len(state.PeerCertificates) != 1 {
		return Key{}, fmt.Errorf("it shows %d certificates, where one holds its key", len(state.PeerCertificates))
	}
	public, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return Key{}, fmt.Errorf("its key is a %T, and not of Ed25519", state.PeerCertificates[0].PublicKey)
	}
	return NewKey(public)
}

// certificate wraps the key in a certificate that says nothing else. TLS 1.3 encrypts it on the wire.
func (id Identity) certificate() (tls.Certificate, error) {
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, id.private.Public(), id.private)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: id.private}, nil
}
