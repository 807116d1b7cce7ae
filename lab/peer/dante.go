package peer

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"heddle/lab"
)

// DanteConfig says what a SOCKS5 proxy permits.
type DanteConfig struct {
	// Listen is where it takes connections; its relays for UDP are on the same address.
	Listen netip.AddrPort
	// Device is what it reaches servers by.
	Device string
	// NoUDP makes its rules forbid UDP ASSOCIATE.
	NoUDP bool
	// Accounts makes it ask for a user and password of the machine's own accounts.
	Accounts bool
}

// Dante starts the unmodified SOCKS5 server of Debian's dante-server on a host. work is an existing directory. It fails
// with [ErrMissing] where danted is not on this machine.
func Dante(ctx context.Context, host *lab.Host, work string, c DanteConfig) (*Process, error) {
	if _, err := exec.LookPath("danted"); err != nil {
		return nil, missing("danted", "apt-get install --no-install-recommends dante-server")
	}
	method, commands := "none", "connect udpassociate udpreply"
	if c.Accounts {
		method = "username"
	}
	if c.NoUDP {
		commands = "connect"
	}
	file := filepath.Join(work, fmt.Sprintf("danted-%d.conf", c.Listen.Port()))
	text := fmt.Sprintf(`logoutput: stderr
internal: %s port = %d
external: %s
clientmethod: none
socksmethod: %s
user.privileged: root
user.unprivileged: nobody
client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 command: %s }
`, c.Listen.Addr(), c.Listen.Port(), c.Device, method, commands)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := Start(ctx, host, "danted", "-f", file, "-p", strings.TrimSuffix(file, "conf")+"pid")
	if err != nil {
		return nil, err
	}
	return p.started(p.listens(ctx, host, c.Listen))
}
