package pseudonym

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/miekg/dns"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

const knotConf = `server:
    rundir: %[1]q
    listen: %[2]v@53
database:
    storage: %[1]q
    journal-db-max-size: 16M
key:
  - id: heddle
    algorithm: hmac-sha256
    secret: c2VjcmV0IG9mIDI0IGJ5dGVzIGhlcmU=
acl:
  - id: updates
    key: heddle
    action: update
zone:
  - domain: %[3]s
    storage: %[1]q
    file: zone
    acl: updates
`

// A command keeps the records at another nameserver, Knot, as the cloud's own one has them.
func TestZoneAtAnotherNameserver(t *testing.T) {
	t.Parallel()
	w := &world{Overlay: labtest.UpOverlay(t, lab.OpenCloud("cloud", "news")), t: t, dir: filepath.Join(t.TempDir(), "cloud")}
	var err error
	if w.cloud, err = peer.NewCloud(t.Context(), w.Overlay.Overlay, w.dir, gateway); err != nil {
		t.Fatal(err)
	}
	w.serveAll()
	at, dir := w.Host("isp").Addrs()[0], t.TempDir()
	for name, text := range map[string]string{"knot.conf": fmt.Sprintf(knotConf, dir, at, zone), "update.key": "hmac-sha256:heddle:c2VjcmV0IG9mIDI0IGJ5dGVzIGhlcmU=\n",
		"zone": "$ORIGIN " + zone + ".\n$TTL 60\n@ SOA ns1.example.net. hostmaster.example.net. 1 3600 600 86400 60\n@ NS ns1.example.net.\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	knot, err := peer.Start(t.Context(), w.Host("isp"), "knotd", "-c", filepath.Join(dir, "knot.conf"))
	if errors.Is(err, peer.ErrMissing) {
		t.Skip("typed skip: apt-get install knot:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(knot.Stop)
	ask := func(kind uint16) (all []dns.RR) {
		_ = w.Host("client").Do(func() error {
			m, err := dns.Exchange(new(dns.Msg).SetQuestion("x."+zone+".", kind), netip.AddrPortFrom(at, 53).String())
			if err == nil {
				all = append(m.Answer, m.Ns...)
			}
			return err
		})
		return all
	}
	polltest.Await(t, "Knot answers", func() bool { return len(ask(dns.TypeA)) == 1 }) // that there is no such name
	w.Start("cloud", "has the records of "+zone, "pseudonym", "zone", w.cloud.File(), "--update", at.String(), "--key", filepath.Join(dir, "update.key"))
	w.hello()
	want := w.record("x." + zone).String()
	polltest.Until(t, func() error {
		if got := ask(dns.TypeHTTPS); len(got) != 1 || got[0].String() != want {
			return fmt.Errorf("Knot answers %v, want %s\n%s", got, want, knot.Log())
		}
		return nil
	})
	if got := ask(dns.TypeA); len(got) != 1 || got[0].(*dns.A).A.String() != gateway.String() {
		t.Errorf("Knot answers %v", got)
	}
}
