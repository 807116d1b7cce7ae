package tunnel

import (
	"net"
	"strings"
	"syscall"
	"testing"

	"heddle/internal/wgtest"
)

// The server demands a cookie for each handshake message. A third network has the best default route, and nobody chose it.
func TestUpWithAServerUnderLoad(t *testing.T) {
	c := newClient(t, wgtest.Overload)
	other := newWire(t, "other0", "192.0.2.2/24")
	defaultRoute(t, "other0")
	if err := send(t, serverAddress+":9", 0, 0, "before"); err != nil || !other.saw("before", patience) {
		t.Fatal("the third network does not have the default route", err)
	}
	r := c.start(isUp)
	if page, err := c.fetch(); page != "inside" {
		t.Errorf("curl got %q, %v", page, err)
	}
	if out, err := c.run("status"); err != nil || !strings.Contains(out, "the server is under load") {
		t.Errorf("status: %v, %s", err, out)
	}
	if err := r.signal(t, syscall.SIGTERM); err != nil {
		t.Errorf("up ended with %v\n%s", err, r.out)
	}
	for len(other.left) > 0 {
		p := <-other.left
		if p[0]>>4 == 4 && net.IP(p[16:20]).String() == serverAddress {
			t.Errorf("a packet to the server left by the network that nobody chose: %x", p)
		}
	}
}
