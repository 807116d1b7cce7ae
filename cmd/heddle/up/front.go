package up

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"

	"heddle/cmd/heddle/internal/runner"
	"heddle/path/wgconf"
	"heddle/proxy/socks"
	"heddle/proxy/users"
	"heddle/split/tunnel"
)

// front is the proxy in front of a userspace tunnel.
type front struct {
	listener net.Listener
	users    *users.Users // nil admits everybody
	work     sync.WaitGroup
	stop     context.CancelFunc
}

// listenFront opens the proxy's port before the tunnel is up, so that a port in use is reported at once.
func listenFront(ctx context.Context, address string, users *users.Users, talk io.Writer) (*front, error) {
	listener, err := runner.Listen(ctx, "socks", address, false)
	if err != nil {
		return nil, err
	}
	if users == nil && runner.Exposed(listener) {
		fmt.Fprintf(talk, "warning: the proxy asks for no password, and listens on %s: whoever can connect there is in the tunnel\n", listener.Addr())
	}
	return &front{listener: listener, users: users}, nil
}

// serve starts the proxy; it ends with ctx or with close.
func (f *front) serve(ctx context.Context, t *tunnel.Tunnel, c *wgconf.Config) {
	ctx, f.stop = context.WithCancel(ctx)
	server := socks.New(&socks.Tunnel{Stack: t.Net(), Addresses: c.Interface.Addresses, Allowed: c.Peer.AllowedIPs,
		Resolver: len(c.Interface.DNS) > 0, Search: c.Interface.Search}, f.users, slog.Default())
	f.work.Go(func() {
		if err := server.Serve(ctx, f.listener); err != nil {
			slog.Error("the proxy ended", "error", err)
		}
	})
}

// close ends the proxy and its connections. Call it before the tunnel ends.
func (f *front) close() {
	f.listener.Close()
	if f.stop != nil {
		f.stop()
	}
	f.work.Wait()
}
