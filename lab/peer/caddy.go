package peer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"heddle/lab"
)

// caddyConfig leaves out what a test must not do: ask an authority for certificates, and listen at ports of its own.
const caddyConfig = `{
	admin off
	auto_https off
	storage file_system %[1]s
}
https://:%[2]d {
	bind %[3]s
	tls %[4]s %[5]s
	reverse_proxy %[6]s
}
`

// startCaddy starts Caddy in front of another web server, with the one line that it needs for that.
func (f Front) startCaddy(ctx context.Context, host *lab.Host) (*Process, error) {
	file := filepath.Join(f.Work, "Caddyfile")
	config := fmt.Sprintf(caddyConfig, f.Work, f.Listen.Port(), f.Listen.Addr(), f.Certificate, f.Key, f.To)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	args := []string{"run", "--adapter", "caddyfile", "--config", file}
	if host == nil {
		return StartHere(ctx, "caddy", args...)
	}
	return Start(ctx, host, "caddy", args...)
}
