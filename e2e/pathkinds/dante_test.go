package pathkinds

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"heddle/lab/peer"
)

// danteConfig says what a SOCKS5 proxy permits.
type danteConfig struct {
	// listen is where it takes connections; its relays for UDP are on the same address.
	listen netip.AddrPort
	// noUDP makes its rules forbid UDP ASSOCIATE.
	noUDP bool
	// accounts makes it ask for a user and password of the machine's own accounts.
	accounts bool
}

// dante starts the unmodified SOCKS5 server of Debian's dante-server on a host, which reaches servers by its device core. It
// skips the test where danted is missing.
func (w *tunnels) dante(host string, c danteConfig) *peer.Process {
	w.t.Helper()
	if _, err := exec.LookPath("danted"); err != nil {
		w.t.Skip(peer.ErrMissing, "apt-get install --no-install-recommends dante-server:", err)
	}
	method, commands := "none", "connect udpassociate udpreply"
	if c.accounts {
		method = "username"
	}
	if c.noUDP {
		commands = "connect"
	}
	file := filepath.Join(w.dir, fmt.Sprintf("danted-%d.conf", c.listen.Port()))
	text := fmt.Sprintf(`logoutput: stderr
internal: %s port = %d
external: core
clientmethod: none
socksmethod: %s
user.privileged: root
user.unprivileged: nobody
client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 command: %s }
`, c.listen.Addr(), c.listen.Port(), method, commands)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	p := w.need(peer.Start(w.t.Context(), w.Host(host), "danted", "-f", file, "-p", strings.TrimSuffix(file, "conf")+"pid"))
	w.answers(host, p, c.listen)
	return p
}
