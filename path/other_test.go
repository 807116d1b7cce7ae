//go:build !linux

package path

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// Where sockets cannot be tied to a device, paths that need it say so, and src: carries datagrams.
func TestWithoutLinux(t *testing.T) {
	for _, kind := range []string{"if", "ports"} {
		_, err := New(Spec{Name: "p", Kind: kind, Arg: "eth0"}, Options{})
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "needs Linux") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := Open(t.Context(), NewSystem(7), netip.MustParseAddrPort("127.0.0.1:9")); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a mark: %v", err)
	}
	far, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	p, err := New(Spec{Name: "p", Kind: "src", Arg: "127.0.0.1"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(t.Context(), p, far.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := f.Send([][]byte{[]byte("one"), nil, []byte("three")}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for _, want := range []string{"one", "", "three"} {
		into := make([]Inbound, 4)
		n, err := far.Receive(into)
		if err != nil || n != 1 || string(into[0].Data) != want || into[0].From != f.(Addressed).LocalAddr() {
			t.Errorf("%d, %q from %v, %v", n, into[0].Data, into[0].From, err)
		}
	}
	if _, err := far.SendTo(f.(Addressed).LocalAddr(), [][]byte{make([]byte, 1<<16), []byte("fits")}); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a datagram too large: %v", err)
	}
	into := make([]Inbound, 1)
	if n, err := f.Receive(into); n != 1 || err != nil || string(into[0].Data) != "fits" {
		t.Errorf("%d, %q, %v", n, into[0].Data, err)
	}
	if err := f.(Checker).Check(); err != nil {
		t.Error(err)
	}
	if info := p.Describe(); !info.Ready || info.MTU == 0 {
		t.Errorf("%+v", info)
	}
}
