package gateway

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"time"

	"heddle/internal/clienthello"
	"heddle/pseudonym/ech"
)

// greeting is what a client said first.
type greeting struct {
	send   []byte      // what the tenant gets of it
	name   string      // that the client asks for
	opened *ech.Opened // nil if the hello was not encrypted for this cloud
}

// greet reads a ClientHello, and opens the one that is encrypted in it. A client that encrypts for an old key, or sends a random text in
// place of an encrypted hello, asks for the name that stands in clear: the server of that name answers with the newest keys.
func (g *Gateway) greet(c net.Conn) (greeting, error) {
	all, hello, err := readHello(c, g.patience)
	if err != nil || hello.Encrypted != clienthello.Outer || g.o.Hellos == nil {
		return greeting{send: all, name: hello.ServerName}, err
	}
	handshake, rest, err := clienthello.Split(all)
	if err != nil {
		return greeting{}, err
	}
	opened, err := ech.Open(g.o.Hellos(), handshake)
	if errors.Is(err, ech.ErrNotOpened) {
		return greeting{send: all, name: hello.ServerName}, nil
	}
	if err != nil {
		return greeting{}, refuse(c, err)
	}
	return greeting{append(clienthello.Records(opened.Hello), rest...), opened.Name, opened}, nil
}

// refuse tells a client why, where TLS has a word for it. It returns the reason.
func refuse(c net.Conn, why error) error {
	if alert := (*ech.Alert)(nil); errors.As(why, &alert) {
		_, _ = c.Write(alert.Record())
	}
	return why
}

const (
	changeCipherSpec = 20 // RFC 8446, section 5.1
	handshakeRecord  = 22
	applicationData  = 23
)

// sslRequest is what a client of PostgreSQL sends before it begins TLS, and sslYes the answer (PostgreSQL's manual, section "Message
// Formats").
var sslRequest = []byte{0, 0, 0, 8, 4, 210, 22, 47}

const sslYes = 'S'

// readHello reads until the ClientHello is whole, and returns all that came. A ClientHello with post-quantum key shares takes more than
// one segment.
func readHello(c net.Conn, patience time.Duration) (all []byte, hello clienthello.Hello, err error) {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	defer c.SetReadDeadline(time.Time{})
	b := make([]byte, 2048)
	asked := false // for TLS
	for len(all) < clienthello.Limit {
		n, err := c.Read(b)
		all = append(all, b[:n]...)
		if !asked && len(all) > 0 && bytes.HasPrefix(sslRequest, all) {
			if asked = len(all) == len(sslRequest); asked {
				all = nil
				if _, err := c.Write([]byte{sslYes}); err != nil {
					return nil, hello, err
				}
			}
			if err != nil {
				return nil, hello, err
			}
			continue
		}
		if len(all) > 0 && all[0] != handshakeRecord {
			return nil, hello, clienthello.ErrNone
		}
		hello, bad := clienthello.Parse(clienthello.Handshake(all))
		switch {
		case bad == nil:
			return all, hello, nil
		case !errors.Is(bad, clienthello.ErrIncomplete):
			return nil, hello, bad
		case err != nil:
			return nil, hello, err
		}
	}
	return nil, hello, clienthello.ErrMalformed
}

// retry passes on the tenant's first message. If that asks for another hello (HelloRetryRequest), it opens that one too: nobody else can,
// as it is encrypted in the context of the first (RFC 9849, section 7.1.1). After it all bytes of both sides pass as they are.
func (g *Gateway) retry(c, to net.Conn, o *ech.Opened) error {
	until := time.Now().Add(helloFor)
	_, _ = c.SetDeadline(until), to.SetDeadline(until)
	defer func() { _, _ = c.SetDeadline(time.Time{}), to.SetDeadline(time.Time{}) }()
	answer, err := readAnswer(to)
	if err != nil {
		return err
	}
	if _, err := c.Write(answer); err != nil || !asksAgain(clienthello.Handshake(answer)) {
		return err
	}
	handshake, rest, err := readSecond(c, to)
	if err != nil {
		return err
	}
	if err := o.Again(handshake); err != nil {
		return refuse(c, err)
	}
	_, err = to.Write(append(clienthello.Records(o.Hello), rest...))
	return err
}

// A ServerHello with this as its random value is a HelloRetryRequest (RFC 8446, section 4.1.3).
var retryRandom = sha256.Sum256([]byte("HelloRetryRequest"))

const (
	typeServerHello = 2
	randomAt        = 4 + 2 // bytes of a ServerHello before its random value
	randomEnd       = randomAt + sha256.Size
)

func asksAgain(handshake []byte) bool {
	return len(handshake) >= randomEnd && handshake[0] == typeServerHello && bytes.Equal(handshake[randomAt:randomEnd], retryRandom[:])
}

// readAnswer reads until it is clear what kind of answer it is, or the end.
func readAnswer(to net.Conn) (all []byte, err error) {
	b := make([]byte, 2048)
	for {
		n, err := to.Read(b)
		all = append(all, b[:n]...)
		if len(all) > 0 && all[0] != handshakeRecord || len(clienthello.Handshake(all)) >= randomEnd || errors.Is(err, io.EOF) || len(all) > clienthello.Limit {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// readSecond reads the next hello of a client, and what came behind it. Records that may stand before the hello go to the tenant as they
// are: early data, and one for the sake of old middleboxes (RFC 8446, appendix D.4).
func readSecond(c net.Conn, to io.Writer) (handshake, rest []byte, err error) {
	var all []byte
	b := make([]byte, 2048)
	for {
		for len(all) >= recordHeader && all[0] != handshakeRecord {
			size := recordHeader + int(all[3])<<8 + int(all[4])
			if all[0] != changeCipherSpec && all[0] != applicationData || size > mostRecord {
				return nil, nil, clienthello.ErrMalformed
			}
			if len(all) < size {
				break
			}
			if _, err := to.Write(all[:size]); err != nil {
				return nil, nil, err
			}
			all = all[size:]
		}
		if len(all) > 0 && all[0] == handshakeRecord {
			if handshake, rest, err = clienthello.Split(all); !errors.Is(err, clienthello.ErrIncomplete) {
				return handshake, rest, err
			}
			if len(all) > clienthello.Limit {
				return nil, nil, clienthello.ErrMalformed
			}
		}
		n, err := c.Read(b)
		if all = append(all, b[:n]...); err != nil && n == 0 {
			return nil, nil, err
		}
	}
}

const (
	recordHeader = 5
	mostRecord   = recordHeader + 1<<14 + 256 // bytes (RFC 8446, section 5.2)
)
