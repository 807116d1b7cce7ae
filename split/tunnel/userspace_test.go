package tunnel

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"

	"heddle/path"
	"heddle/schedule"
	"heddle/split"
)

// sinkServer is a wireguard-go server on loopback that reads what connections to its port 9 send. It gives the text of
// a WireGuard file for it.
func sinkServer(t *testing.T) string {
	t.Helper()
	own, peer := newKey(t), newKey(t)
	inside := netip.MustParseAddr("10.99.0.1")
	behind, stack, err := netstack.CreateNetTUN([]netip.Addr{inside}, nil, 1420)
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewDevice(behind, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	err = dev.IpcSet(fmt.Sprintf("private_key=%x\nlisten_port=0\npublic_key=%x\nallowed_ip=10.99.0.2/32\n", own.Bytes(), peer.PublicKey().Bytes()))
	if err == nil {
		err = dev.Up()
	}
	if err != nil {
		t.Fatal(err)
	}
	listener, err := stack.ListenTCPAddrPort(netip.AddrPortFrom(inside, 9))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}()
	state, err := dev.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	port := 0
	for line := range strings.Lines(state) {
		_, _ = fmt.Sscanf(line, "listen_port=%d", &port)
	}
	return fmt.Sprintf("[Interface]\nPrivateKey = %s\nAddress = 10.99.0.2/32\n[Peer]\nPublicKey = %s\nAllowedIPs = 0.0.0.0/0\nEndpoint = 127.0.0.1:%d\n",
		encode(peer.Bytes()), encode(own.PublicKey().Bytes()), port)
}

// The end comes while the stack inside sends as fast as it can.
func TestUserspaceClosesUnderLoad(t *testing.T) {
	text := sinkServer(t)
	for range 5 {
		tunnel, err := New(Options{Name: "office", Config: parse(t, text), Userspace: true, Dir: t.TempDir(), Split: split.Options{
			Via:      []path.Spec{{Name: "a", Kind: "src", Arg: "127.0.1.1"}, {Name: "b", Kind: "src", Arg: "127.0.1.2"}},
			Schedule: schedule.Config{Name: "uniform", Every: schedule.Every{Period: 10 * time.Millisecond}}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if err := tunnel.Up(ctx, nil, nil); err != nil {
			t.Fatal(err)
		}
		cancel()
		for range 8 {
			c, err := tunnel.Net().DialContextTCPAddrPort(t.Context(), netip.MustParseAddrPort("10.99.0.1:9"))
			if err != nil {
				t.Fatal(err)
			}
			sent := make(chan struct{})
			go func() {
				block := make([]byte, 64<<10)
				for n := 0; ; n++ {
					if n == 4 {
						close(sent)
					}
					if _, err := c.Write(block); err != nil {
						return
					}
				}
			}()
			<-sent
		}
		if err := tunnel.Close(); err != nil {
			t.Error(err)
		}
	}
}
