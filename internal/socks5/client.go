package socks5

import (
	"errors"
	"io"
	"net/netip"
)

// Reasons why a proxy does not admit a client.
var (
	ErrMethod     = errors.New("it wants a kind of authentication that was not offered")
	ErrWantsUser  = errors.New("it wants a user and a password")
	ErrPassword   = errors.New("it does not accept the user and password")
	errNamedRelay = errors.New("it names its relay by a host name, not by an address")
)

// Credentials are a user and password of RFC 1929, 1 to [LongestField] bytes each.
type Credentials struct{ User, Password string }

// Greet negotiates an authentication method with a proxy and performs it. Without credentials it offers only "none".
func Greet(rw io.ReadWriter, c *Credentials) error {
	greeting := []byte{Version, 1, methodNone}
	if c != nil {
		greeting = []byte{Version, 2, methodNone, methodPassword}
	}
	if _, err := rw.Write(greeting); err != nil {
		return err
	}
	var chosen [2]byte
	if _, err := io.ReadFull(rw, chosen[:]); err != nil {
		return err
	}
	switch {
	case chosen[0] != Version:
		return ErrVersion
	case chosen[1] == methodNone:
		return nil
	case chosen[1] == methodPassword && c != nil:
		return c.show(rw)
	case chosen[1] == methodUnacceptable && c == nil, chosen[1] == methodPassword:
		return ErrWantsUser
	}
	return ErrMethod
}

// show performs the sub-negotiation of RFC 1929.
func (c *Credentials) show(rw io.ReadWriter) error {
	message := append([]byte{authVersion, byte(len(c.User))}, c.User...)
	message = append(append(message, byte(len(c.Password))), c.Password...)
	if _, err := rw.Write(message); err != nil {
		return err
	}
	var answer [2]byte
	if _, err := io.ReadFull(rw, answer[:]); err != nil {
		return err
	}
	switch {
	case answer[0] != authVersion:
		return ErrVersion
	case answer[1] != 0:
		return ErrPassword
	}
	return nil
}

// Request sends a command and returns the address of the reply, possibly unspecified. A failure reply is the error.
func Request(rw io.ReadWriter, command byte, to Target) (netip.AddrPort, error) {
	if _, err := rw.Write(AppendTarget([]byte{Version, command, 0}, to)); err != nil {
		return netip.AddrPort{}, err
	}
	return readReply(rw)
}

// readReply reads the reply to a request, and no byte more.
func readReply(r io.Reader) (netip.AddrPort, error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return netip.AddrPort{}, err
	}
	if head[0] != Version {
		return netip.AddrPort{}, ErrVersion
	}
	bound, err := readTarget(r)
	switch {
	case Reply(head[1]) != Succeeded: // some proxies close at once, without an address
		return netip.AddrPort{}, Reply(head[1])
	case err != nil:
		return netip.AddrPort{}, err
	case bound.Name != "":
		return netip.AddrPort{}, errNamedRelay
	}
	return netip.AddrPortFrom(bound.Addr, bound.Port), nil
}
