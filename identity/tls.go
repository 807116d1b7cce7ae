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

// KeyError is the error of a peer that proved an unexpected key.
type KeyError struct{ Want, Got Key }

func (e *KeyError) Error() string {
	return fmt.Sprintf("it holds the key %v, and not %v, which is expected there", e.Got, e.Want)
}

func (e *KeyError) HintText() string {
	return "somebody else answers at this address, or its owner made a new key: ask them"
}

// Client returns the configuration of TLS 1.3 connections to a server that proves a key, with one ALPN protocol (RFC 7301).
func (id Identity) Client(server Key, protocol string) (*tls.Config, error) {
	c, err := id.config(protocol, func(got Key) error {
		if got != server {
			return &KeyError{Want: server, Got: got}
		}
		return nil
	})
	if err == nil {
		// The key alone authenticates the server. Without this, crypto/tls would check names and chains.
		c.InsecureSkipVerify = true
	}
	return c, err
}

// Server returns the configuration of TLS 1.3 connections in which this side proves id. accept decides whether a client is
// admitted; [PeerKey] returns its key later. protocols are the ALPN protocols.
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
		// Unlike VerifyPeerCertificate, it is also called for resumed sessions.
		VerifyConnection: func(state tls.ConnectionState) error {
			key, err := PeerKey(state)
			if err != nil {
				return err
			}
			return accept(key)
		},
	}, nil
}

// PeerKey returns the key that the other side proved.
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

// certificate returns a certificate with nothing but the key. TLS 1.3 encrypts it on the wire.
func (id Identity) certificate() (tls.Certificate, error) {
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, id.private.Public(), id.private)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: id.private}, nil
}
