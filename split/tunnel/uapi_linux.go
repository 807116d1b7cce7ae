package tunnel

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"heddle/internal/netutil"

	"golang.org/x/sys/unix"

	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
)

// controlSocket lets wg(8) query the device, as commands in wg-quick files do: `wg show %i fwmark`.
type controlSocket struct{ listener net.Listener }

// serveControl opens the socket. A device of this name in another network namespace may hold it; the tunnel works without.
func serveControl(name string, dev *device.Device, log *slog.Logger) *controlSocket {
	var listener net.Listener
	file, err := ipc.UAPIOpen(name)
	if err == nil {
		if listener, err = ipc.UAPIListen(name, file); err != nil {
			file.Close()
		}
	}
	if err != nil {
		log.Warn("wg(8) cannot ask about this tunnel", "tunnel", name, "error", err)
		return nil
	}
	go netutil.Serve(context.Background(), listener, func(conn net.Conn) { go dev.IpcHandle(conn) })
	return &controlSocket{listener}
}

func (c *controlSocket) close() {
	if c != nil {
		c.listener.Close()
	}
}

// removeDeadSocket removes a socket that a crash left, but none that is served.
func removeDeadSocket(name string) error {
	file := filepath.Join("/var/run/wireguard", name+".sock") // where wg(8) looks
	conn, err := net.Dial("unix", file)
	if err == nil {
		return conn.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
