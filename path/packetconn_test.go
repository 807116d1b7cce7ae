package path

import (
	"net/netip"
	"strings"
	"testing"
)

func TestPacketConnRemembersStrangers(t *testing.T) {
	listen := func() *Socket {
		s, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	server, stranger := listen(), listen()
	flow, err := Open(t.Context(), NewSystem(0), server.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	c := PacketConn(flow, server.LocalAddr())
	defer c.Close()
	if hint := c.Stranger.Hint(); hint != "" {
		t.Errorf("nobody was heard, and the hint is %q", hint)
	}
	c.WriteTo([]byte("hello"), nil)
	into := make([]Inbound, 1)
	if _, err := server.Receive(into); err != nil {
		t.Fatal(err)
	}
	client := into[0].From
	for _, s := range []*Socket{stranger, server} {
		if _, err := s.SendTo(client, [][]byte{[]byte(s.LocalAddr().String())}); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, 100)
	n, _, err := c.ReadFrom(got)
	if err != nil || string(got[:n]) != server.LocalAddr().String() {
		t.Errorf("read %q, %v", got[:n], err)
	}
	if hint := c.Stranger.Hint(); !strings.Contains(hint, stranger.LocalAddr().String()) {
		t.Errorf("the hint is %q", hint)
	}
}
