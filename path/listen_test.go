package path

import (
	"net"
	"testing"
)

func TestFamily(t *testing.T) {
	for at, want := range map[string]string{":80": "tcp", "0.0.0.0:80": "tcp4", "192.0.2.1:80": "tcp4", "[::]:80": "tcp", "localhost:80": "tcp", "nonsense": "tcp"} {
		if got := Family("tcp", at); got != want {
			t.Errorf("%s: %s, want %s", at, got, want)
		}
	}
	l, err := net.Listen(Family("tcp", "0.0.0.0:0"), "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, port, _ := net.SplitHostPort(l.Addr().String()); l.Addr().String() != "0.0.0.0:"+port {
		t.Errorf("it listens on %v", l.Addr())
	}
}
