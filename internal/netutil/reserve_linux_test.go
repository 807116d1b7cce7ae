package netutil

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

func TestReserve(t *testing.T) {
	at, err := Reserve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", at.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("somebody listens: %v", err)
	}
	if c, err := net.DialTCP("tcp", net.TCPAddrFromAddrPort(at), net.TCPAddrFromAddrPort(at)); err == nil {
		c.Close()
		t.Error("a client got the port")
	}
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
