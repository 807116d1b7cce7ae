package socks5

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
)

type Auth struct {
	// Password checks a user and a password (RFC 1929), up to 255 arbitrary bytes each; nil asks for none. Pluggable
	// transports receive their arguments this way.
	Password func(user, password string) error
	Optional bool // also admit clients that offer no password
}

// Negotiate reads the client's greeting, chooses an authentication method and performs it. It reports whether it succeeded.
func Negotiate(r io.Reader, w io.Writer, auth Auth) (bool, error) {
	methods, err := readMethods(r)
	if err != nil {
		return false, err
	}
	method := byte(methodUnacceptable)
	switch {
	case auth.Password != nil && bytes.IndexByte(methods, methodPassword) >= 0:
		method = methodPassword
	case (auth.Password == nil || auth.Optional) && bytes.IndexByte(methods, methodNone) >= 0:
		method = methodNone
	}
	if _, err := w.Write([]byte{Version, method}); err != nil || method != methodPassword {
		return method == methodNone && err == nil, err
	}
	user, password, err := readPassword(r)
	if err != nil {
		return false, err
	}
	status := byte(0)
	if auth.Password(user, password) != nil {
		status = 1
	}
	_, err = w.Write([]byte{authVersion, status})
	return status == 0 && err == nil, err
}

// readMethods reads the methods in the client's greeting.
func readMethods(r io.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	if head[0] != Version {
		return nil, ErrVersion
	}
	methods := make([]byte, head[1])
	_, err := io.ReadFull(r, methods)
	return methods, err
}

// readPassword reads the client's message of RFC 1929.
func readPassword(r io.Reader) (user, password string, err error) {
	var one [1]byte
	if _, err := io.ReadFull(r, one[:]); err != nil {
		return "", "", err
	}
	if one[0] != authVersion {
		return "", "", errors.New("unknown version of user and password")
	}
	for _, field := range []*string{&user, &password} {
		if _, err := io.ReadFull(r, one[:]); err != nil {
			return "", "", err
		}
		text := make([]byte, one[0])
		if _, err := io.ReadFull(r, text); err != nil {
			return "", "", err
		}
		*field = string(text)
	}
	return user, password, nil
}

// ReadRequest reads a command and its target (RFC 1928, section 4).
func ReadRequest(r io.Reader) (command byte, to Target, err error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, Target{}, err
	}
	if head[0] != Version {
		return 0, Target{}, ErrVersion
	}
	to, err = readTarget(r)
	return head[1], to, err
}

// WriteReply answers a request. bound is where the server listens or sends from.
func WriteReply(w io.Writer, code Reply, bound netip.AddrPort) error {
	_, err := w.Write(appendAddress([]byte{Version, byte(code), 0}, bound))
	return err
}

// ParseDatagram splits a UDP datagram of a client or relay (RFC 1928, section 7). payload shares the memory of b.
func ParseDatagram(b []byte) (to Target, payload []byte, err error) {
	if len(b) < 4 {
		return Target{}, nil, ErrShort
	}
	if b[2] != 0 {
		return Target{}, nil, ErrFragment
	}
	return parseTarget(b[3:])
}

// AppendDatagramHeader appends the header of a datagram to the client, with its sender from.
func AppendDatagramHeader(b []byte, from netip.AddrPort) []byte {
	return appendAddress(append(b, 0, 0, 0), from)
}
