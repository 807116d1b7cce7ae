package peer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"

	"heddle/lab"
)

// Masque is a running `heddle masque serve` with one user.
type Masque struct {
	*Process
	Place string // as a path is written, masque:URL with the certificate's fingerprint
	Token string // the file of the user's token
}

var masquePlace = regexp.MustCompile(`NAME=(masque:\S+)`)

// MasqueProxy starts a proxy on a host, with its files below work, an existing directory. A proxy with the same work has the
// same user and certificate. Programs call heddle.
func MasqueProxy(ctx context.Context, host *lab.Host, heddle, work string, listen netip.AddrPort, args ...string) (*Masque, error) {
	users, token := filepath.Join(work, "users"), filepath.Join(work, "token")
	if _, err := os.Stat(token); errors.Is(err, os.ErrNotExist) {
		out, err := host.Command(ctx, heddle, "masque", "user", "add", "ann", "--auth", users).Output()
		if err == nil {
			err = os.WriteFile(token, out, 0o600)
		}
		if err != nil {
			return nil, fmt.Errorf("add a user of the proxy: %w", err)
		}
	}
	p, err := Start(ctx, host, heddle, append([]string{"masque", "serve", "--listen", listen.String(),
		"--self-signed", filepath.Join(work, "tls"), "--auth", users, "--drain", "0s"}, args...)...)
	if err != nil {
		return nil, err
	}
	if p, err = p.OrStop(p.AwaitLog(ctx, "use it as a path")); err != nil {
		return nil, err
	}
	found := masquePlace.FindStringSubmatch(p.Log())
	if found == nil {
		p.Stop()
		return nil, fmt.Errorf("the proxy does not say how to use it:\n%s", p.Log())
	}
	return &Masque{p, found[1], token}, nil
}
