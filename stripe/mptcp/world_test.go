package mptcp

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"heddle/internal/nstest"
)

// world is a client and a server that are joined by two links; the server's addresses stand for the nodes'.
type world struct {
	t              *testing.T
	client, server nstest.Namespace
	runDir         string // the client's
}

const port = 7000

func serverAddr(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(n), 1}), port)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if err := supported(); err != nil {
		t.Skipf("%v", err)
	}
	w := &world{t: t, client: nstest.New(t), server: nstest.New(t), runDir: t.TempDir()}
	for n := 1; n <= 2; n++ {
		nstest.Link(t, nstest.End{In: w.server, Device: fmt.Sprintf("s%d", n), Addrs: []string{fmt.Sprintf("10.9.%d.1/24", n)}},
			nstest.End{In: w.client, Device: fmt.Sprintf("c%d", n), Addrs: []string{fmt.Sprintf("10.9.%d.2/24", n)}})
	}
	return w
}

// cut takes a link away, or brings it back.
func (w *world) cut(n int, up bool) {
	w.t.Helper()
	w.server.Do(w.t, func() error { return nstest.SetUp(fmt.Sprintf("s%d", n), up) })
}

// pathManager gives the client's setting.
func (w *world) pathManager() (value string) {
	w.t.Helper()
	w.client.Do(w.t, func() error {
		text, err := os.ReadFile(managerFile)
		value = string(text)
		return err
	})
	return value
}

// sent counts what left the client by a device.
func (w *world) sent(device string) (bytes uint64) {
	w.t.Helper()
	w.client.Do(w.t, func() error {
		link, err := netlink.LinkByName(device)
		if err == nil {
			bytes = link.Attrs().Statistics.TxBytes
		}
		return err
	})
	return bytes
}
