package path

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSockaddrKeepsAddresses(t *testing.T) {
	for _, c := range []struct {
		six  bool
		give string
	}{
		{false, "192.0.2.7:51820"}, {true, "[2001:db8::7]:443"}, {true, "[fe80::7%lo]:1"}, {true, "[fe80::7%4294967295]:1"},
	} {
		var s sockaddr
		want := netip.MustParseAddrPort(c.give)
		if _, err := s.put(want, c.six); err != nil || s.addrPort() != want {
			t.Errorf("%s became %v, %v", c.give, s.addrPort(), err)
		}
	}
	for _, c := range []struct {
		six  bool
		give string
		want error
	}{
		{true, "192.0.2.7:1", unix.EAFNOSUPPORT}, {false, "[2001:db8::7]:1", unix.EAFNOSUPPORT}, {true, "[fe80::7%nosuchdevice]:1", unix.ENODEV},
	} {
		if _, err := new(sockaddr).put(netip.MustParseAddrPort(c.give), c.six); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.give, err, c.want)
		}
	}
	if got := new(sockaddr).addrPort(); got.IsValid() {
		t.Errorf("an address of no family became %v", got)
	}
}
