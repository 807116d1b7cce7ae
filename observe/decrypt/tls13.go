package decrypt

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/cryptobyte"

	"heddle/internal/clienthello"
)

// ErrNoTLS is returned by [Open] for a conversation that is not TLS 1.3.
var ErrNoTLS = errors.New("it is no TLS 1.3")

// ErrNoKeys is returned by [Open] if the key log lacks the secrets of a connection.
var ErrNoKeys = errors.New("the key log has no secrets of this connection")

// Types of records and handshake messages (RFC 8446, sections 4 and 5.1).
const (
	recordChange      = 20
	recordHandshake   = 22
	recordApplication = 23

	messageServerHello = 2
	messageFinished    = 20
	messageKeyUpdate   = 24

	headerLength = 5
	maxRecord    = 1<<14 + 256
)

// Record is the application data of one record.
type Record struct {
	// At is the offset of the encrypted text in the stream of records. All TLS 1.3 suites keep the bytes in order.
	At   int
	Text []byte
}

// Join concatenates the data of records.
func Join(records []Record) (text []byte) {
	for _, r := range records {
		text = append(text, r.Text...)
	}
	return text
}

// Open returns the application data of client and server in a TLS 1.3 connection, as [Records] does.
func Open(up, down []byte, keys Keys) (client, server []byte, err error) {
	c, s, err := Records(up, down, keys)
	return Join(c), Join(s), err
}

// Records returns the application data of client and server in a TLS 1.3 connection. up and down are the bytes of its
// records from the first on, and may be truncated. A record that cannot be decrypted ends its direction with an error,
// in addition to the records before it.
func Records(up, down []byte, keys Keys) (client, server []Record, err error) {
	random, err := clientRandom(up)
	if err != nil {
		return nil, nil, err
	}
	suite, err := chosenSuite(down)
	if err != nil {
		return nil, nil, err
	}
	of, ok := keys[random]
	if !ok {
		return nil, nil, ErrNoKeys
	}
	client, clientErr := suite.open(up, of[clientHandshake], of[clientTraffic])
	server, serverErr := suite.open(down, of[serverHandshake], of[serverTraffic])
	return client, server, errors.Join(clientErr, serverErr)
}

// IsTLS reports whether bytes begin like a TLS client's.
func IsTLS(up []byte) bool {
	_, err := clientRandom(up)
	return err == nil
}

func clientRandom(up []byte) (random [32]byte, err error) {
	h, _ := clienthello.Parse(clienthello.Handshake(up)) // Parse returns the random even if the rest is malformed
	if len(h.Random) != len(random) {
		return random, ErrNoTLS
	}
	return [32]byte(h.Random), nil
}

// suite is a cipher suite of TLS 1.3 (RFC 8446, appendix B.4).
type suite struct {
	key  int
	hash func() hash.Hash
	aead func(key []byte) (cipher.AEAD, error)
}

var suites = map[uint16]suite{
	0x1301: {16, sha256.New, newGCM},
	0x1302: {32, sha512.New384, newGCM},
	0x1303: {chacha20poly1305.KeySize, sha256.New, chacha20poly1305.New},
}

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func chosenSuite(down []byte) (suite, error) {
	s := cryptobyte.String(clienthello.Handshake(down))
	var kind uint8
	var body, session cryptobyte.String
	var number uint16
	if !s.ReadUint8(&kind) || kind != messageServerHello || !s.ReadUint24LengthPrefixed(&body) ||
		!body.Skip(34) || !body.ReadUint8LengthPrefixed(&session) || !body.ReadUint16(&number) {
		return suite{}, ErrNoTLS
	}
	chosen, ok := suites[number]
	if !ok {
		return suite{}, fmt.Errorf("%w: cipher suite %#04x", ErrNoTLS, number)
	}
	return chosen, nil
}

// protection decrypts the records of one direction in order.
type protection struct {
	suite
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	number uint64
}

func (s suite) protect(secret []byte) (*protection, error) {
	if secret == nil {
		return nil, ErrNoKeys
	}
	key, err := clienthello.ExpandLabel(s.hash, secret, "key", s.key)
	if err != nil {
		return nil, err
	}
	iv, err := clienthello.ExpandLabel(s.hash, secret, "iv", 12)
	if err != nil {
		return nil, err
	}
	aead, err := s.aead(key)
	return &protection{suite: s, secret: secret, aead: aead, iv: iv}, err
}

// open returns the content of a record and its inner type (RFC 8446, section 5.2).
func (p *protection) open(record []byte) (content []byte, kind byte, err error) {
	nonce := append([]byte(nil), p.iv...)
	binary.BigEndian.PutUint64(nonce[4:], binary.BigEndian.Uint64(nonce[4:])^p.number)
	content, err = p.aead.Open(nil, nonce, record[headerLength:], record[:headerLength])
	if err != nil {
		return nil, 0, fmt.Errorf("record %d does not open with the keys of the log", p.number)
	}
	p.number++
	for end := len(content); end > 0; end-- {
		if content[end-1] != 0 { // zeros after the type are padding
			return content[:end-1], content[end-1], nil
		}
	}
	return nil, 0, errors.New("a record is all padding")
}

// open decrypts one direction: with the handshake secret up to Finished, then with the traffic secret.
func (s suite) open(stream, handshake, traffic []byte) (records []Record, err error) {
	all := len(stream)
	current, err := s.protect(handshake)
	if err != nil {
		return nil, err
	}
	for len(stream) >= headerLength {
		length := int(binary.BigEndian.Uint16(stream[3:]))
		if length > maxRecord {
			return records, fmt.Errorf("a record of %d bytes, more than there may be", length)
		}
		if len(stream) < headerLength+length {
			return records, nil
		}
		record := stream[:headerLength+length]
		stream = stream[headerLength+length:]
		if record[0] == recordHandshake || record[0] == recordChange {
			continue // not yet encrypted
		}
		content, kind, err := current.open(record)
		if err != nil {
			return records, err
		}
		switch kind {
		case recordApplication:
			records = append(records, Record{At: all - len(stream) - len(record) + headerLength, Text: content})
		case recordHandshake:
			if current, err = current.after(content, traffic); err != nil {
				if len(stream) == 0 && errors.Is(err, ErrNoKeys) {
					err = nil // the connection ended with the handshake, before there were more keys
				}
				return records, err
			}
		}
	}
	return records, nil
}

// after returns the protection to use after handshake messages, which may change the keys.
func (p *protection) after(messages, traffic []byte) (_ *protection, err error) {
	for m := cryptobyte.String(messages); len(m) >= 4 && err == nil; {
		var kind uint8
		var body cryptobyte.String
		if !m.ReadUint8(&kind) || !m.ReadUint24LengthPrefixed(&body) {
			break // Finished and KeyUpdate never continue in the next record
		}
		switch kind {
		case messageFinished:
			p, err = p.protect(traffic)
		case messageKeyUpdate: // RFC 8446, section 7.2
			var updated []byte
			if updated, err = clienthello.ExpandLabel(p.hash, p.secret, "traffic upd", p.hash().Size()); err == nil {
				p, err = p.protect(updated)
			}
		}
	}
	return p, err
}
