package pseudonym

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/peer"
)

// whoSays is a site of nginx that says under /who which client it was told of, and has all else from the site's own server.
const whoSays = `server {
		listen 127.0.0.1:8081;
		location = /who { return 200 $http_x_forwarded_for; }
		location / { proxy_pass http://127.0.0.1:80; proxy_buffering off; }
	}
	`

// localServer is where the server behind an agent listens.
var localServer = netip.MustParseAddrPort("127.0.0.1:4443")

// behind starts an nginx for whoSays, and with more.
func (w *world) behind(more string) {
	w.t.Helper()
	if _, err := peer.StartNginx(w.t.Context(), w.Host("news"), w.t.TempDir(), whoSays+more); err != nil {
		w.skipMissing(err)
	}
}

func (w *world) skipMissing(err error) {
	w.t.Helper()
	if errors.Is(err, peer.ErrMissing) {
		w.t.Skip(err)
	}
	w.t.Fatal(err)
}

// toldSidecar is a sidecar whose server says which client it was told of.
func (w *world) toldSidecar(s peer.Sidecar) (flags []string) {
	w.t.Helper()
	w.behind("")
	s.To = "http://127.0.0.1:8081"
	return w.sidecar(s)
}

// local is a sidecar, or what takes its place, that hears of clients on its own machine alone.
func local(s peer.Sidecar) peer.Sidecar {
	s.Socket, s.Listen, s.To = "", localServer, "http://127.0.0.1:8081"
	s.Flags = []string{"--gateway-from", "127.0.0.1/32"}
	return s
}

// nginxServes lets Debian's nginx serve the news.
func (w *world) nginxServes(s peer.Sidecar) (flags []string) {
	w.t.Helper()
	include, err := w.cloud.Nginx(w.t.Context(), local(s), filepath.Join(w.t.TempDir(), "heddle"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.behind("include " + include + ";")
	return []string{"--to", "proxy:" + localServer.String()}
}

// haproxyServes lets Debian's HAProxy stand before a sidecar.
func (w *world) haproxyServes(s peer.Sidecar) (flags []string) {
	w.t.Helper()
	w.behind("")
	w.sidecar(local(s))
	if _, err := peer.HAProxyAt(w.t.Context(), w.Host("news"), w.t.TempDir(), "unix:"+s.Socket, true, localServer); err != nil {
		w.skipMissing(err)
	}
	return []string{"--to", "proxy:unix:" + s.Socket}
}

// An agent leads connections to unmodified servers, which learn the client's address by the PROXY protocol. No byte goes by the gateway.
func TestAgentLeadsToOtherServers(t *testing.T) {
	for name, site := range map[string]func(*world, peer.Sidecar) []string{"nginx": (*world).nginxServes, "HAProxy": (*world).haproxyServes} {
		t.Run(name, func(t *testing.T) {
			w, r, agent := movingWorldTo(t, lab.OpenCloud("cloud", "news"), (*world).serveAll, site)
			before := 0
			polltest.Await(t, "the server learns of the pseudonym", func() bool {
				before++
				page, status, err := w.curl(r, r.To("/who"))
				return err == nil && status == 200 && page == w.Host("client").Addrs()[0].String()
			})
			w.carriesNoBytes(r, agent, false, before)
		})
	}
}
