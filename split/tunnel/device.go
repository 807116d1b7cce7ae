package tunnel

import (
	"bufio"
	"fmt"
	"log/slog"
	"strings"

	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"heddle/path/wgconf"
	"heddle/split"
)

// deviceChange is the TUN device with WireGuard. The kernel removes it with this process, but not wg(8)'s socket.
type deviceChange struct {
	Device string `json:"device"`

	create func() error
	remove func()
}

func (c *deviceChange) String() string { return "ip tuntap add mode tun dev " + c.Device }

func (c *deviceChange) Apply() error { return c.create() }

func (c *deviceChange) Undo() error {
	if c.remove == nil {
		return removeDeadSocket(c.Device)
	}
	c.remove()
	return nil
}

// engine is wireguard-go between a TUN device and the paths.
type engine struct {
	device *device.Device
	peer   *device.Peer
}

// newEngine configures wireguard-go, which owns dev from then on. Keys stay in memory.
func newEngine(dev tun.Device, bind *split.Bind, c *wgconf.Config, mark uint32, log *slog.Logger) (*engine, error) {
	e := &engine{device: device.NewDevice(bind.Bound(dev), bind, &device.Logger{
		Verbosef: func(format string, args ...any) { log.Debug("wireguard: " + fmt.Sprintf(format, args...)) },
		Errorf:   func(format string, args ...any) { log.Warn("wireguard: " + fmt.Sprintf(format, args...)) },
	})}
	if err := e.device.IpcSet(c.UAPI(bind.Status().Server, mark)); err != nil {
		e.device.Close()
		return nil, fmt.Errorf("wireguard-go refuses the configuration: %w", err)
	}
	e.peer = e.device.LookupPeer(device.NoisePublicKey(c.Peer.PublicKey.Bytes()))
	bind.Attach(e.peer.SendKeepalive)
	return e, nil
}

// shaken reports whether a handshake with the server has completed.
func (e *engine) shaken() bool {
	state, err := e.device.IpcGet()
	if err != nil {
		return false
	}
	for lines := bufio.NewScanner(strings.NewReader(state)); lines.Scan(); {
		if seconds, ok := strings.CutPrefix(lines.Text(), "last_handshake_time_sec="); ok && seconds != "0" {
			return true
		}
	}
	return false
}
