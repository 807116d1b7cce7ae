package peer

import (
	"context"
	"net"
	"net/netip"

	"heddle/lab"
)

// SOCKS5 starts the unmodified SOCKS5 server of github.com/wzshiming/socks5 on a host, built from the module version
// that go.mod pins. It takes one user and password (RFC 1929), where danted knows the machine's accounts only, and
// relays UDP.
func SOCKS5(ctx context.Context, host *lab.Host, listen netip.AddrPort, user, password string) (*Process, error) {
	program, err := goProgram(ctx, "socks5", "github.com/wzshiming/socks5", "/cmd/socks5")
	if err != nil {
		return nil, err
	}
	p, err := Start(ctx, host, program, "-a", listen.String(), "-u", user, "-p", password)
	if err != nil {
		return nil, err
	}
	return p.started(p.listens(ctx, host, listen))
}

// listens waits until TCP at an address of the host is answered.
func (p *Process) listens(ctx context.Context, host *lab.Host, at netip.AddrPort) error {
	return p.await(ctx, func() error {
		return host.Do(func() error {
			conn, err := net.Dial("tcp", at.String())
			if err != nil {
				return err
			}
			return conn.Close()
		})
	})
}
