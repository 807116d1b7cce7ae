package bench

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"

	"heddle/lab"
	"heddle/lab/peer"
)

// Core is where the three ways meet, so the proxy there has an entry by each and one exit.
var quicProxy = netip.MustParseAddrPort("192.0.2.254:4434")

var proxyPlace = regexp.MustCompile(`NAME=(masque:\S+)`)

// quicExit is a QUIC session whose paths all lead to one proxy of `heddle masque serve`, each over its own way.
type quicExit struct {
	quicSession
	place string // of the proxy, as a path is written
	token string // file
}

func (q *quicExit) serve(ctx context.Context, s *stage) error {
	if err := q.quicSession.serve(ctx, s); err != nil {
		return err
	}
	users := filepath.Join(s.work, "users")
	token, err := s.Host("core").Command(ctx, s.heddle, "masque", "user", "add", "bench", "--auth", users).Output()
	if err != nil {
		return fmt.Errorf("add a user of the proxy: %w", err)
	}
	q.token = filepath.Join(s.work, "token")
	if err := os.WriteFile(q.token, token, 0o600); err != nil {
		return err
	}
	proxy, err := peer.Start(ctx, s.Host("core"), s.heddle, "masque", "serve", "--listen", quicProxy.String(),
		"--self-signed", filepath.Join(s.work, "proxy"), "--auth", users)
	if err != nil {
		return err
	}
	if err := proxy.AwaitLog(ctx, "use it as a path"); err != nil {
		return err
	}
	found := proxyPlace.FindStringSubmatch(proxy.Log())
	if found == nil {
		return fmt.Errorf("the proxy does not say how to use it: %w", logs(proxy))
	}
	q.place = found[1]
	return nil
}

func (q *quicExit) variant(name, every string, flags ...string) variant {
	return q.relayed(name, func(seed int) []string {
		args := schedule(every, seed)
		for _, way := range lab.Ways {
			args = append(args, "--path", way+"=if:"+way, "--via", "by-"+way+"="+q.place+"@"+way, "--secret", "by-"+way+"="+q.token)
		}
		return append(args, flags...)
	}, q.measure)
}
