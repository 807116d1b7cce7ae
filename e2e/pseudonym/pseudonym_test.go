package pseudonym

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/polltest"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// get registers a pseudonym.
func (w *world) get(site string) (r registered) {
	w.t.Helper()
	out := w.Run("client", "pseudonym", "get", site, "--zone", zone, "--root", filepath.Join(w.dir, "root.pem"), "--json")
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	return r
}

// A user gets pseudonyms of two sites and visits both. The observer sees the cloud's address and names that tell nothing: neither
// the sites' names nor their pages nor their addresses, during registration and visits alike.
func TestNetworkDoesNotSeeTheSites(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, map[string]string{"isp": "isp/client"})
	for _, site := range []string{news, shop} {
		r := w.get(site)
		if !strings.HasSuffix(r.Name, "."+zone) || strings.Contains(r.Name, strings.TrimSuffix(site, ".example")) {
			t.Errorf("the pseudonym is %s", r.Name)
		}
		if page, status, err := w.curl(r, r.URL); err != nil || status != 200 || page != text(site) {
			t.Errorf("%s: %q, %d, %v\n%s", site, page, status, err, w.sidecars[site].Log())
		}
	}
	end()
	seen, err := os.ReadFile(labtest.File(dir, "isp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"news", "shop", "nobody else reads"} {
		if bytes.Contains(seen, []byte(secret)) {
			t.Errorf("the observer sees %q", secret)
		}
	}
	// The zone's name in DNS and TLS shows that the capture is complete.
	if n := bytes.Count(seen, []byte(zone)); n < 3 {
		t.Errorf("the observer sees the zone %d times", n)
	}
	c := labtest.Read(t, labtest.File(dir, "isp"), w.Host("client").Addrs())
	for _, f := range c.Flows {
		if f.Server.Addr() != gateway && !f.Server.Addr().IsMulticast() {
			t.Errorf("the client talks to %v", f.Server)
		}
	}
}

// Without the key of the pseudonym, or without its capability, nobody learns which site it is (R4, and section 4.3 of the paper).
func TestOthersLearnNothing(t *testing.T) {
	w := newWorld(t)
	r, other := w.get(news), w.get(shop)
	bare := "https://" + r.Name + "/"
	for name, try := range map[string]struct {
		files registered
		url   string
		more  []string
	}{
		"no certificate":         {registered{}, r.URL, nil},
		"another's certificate":  {other, r.URL, nil},
		"no pseudonym":           {r, strings.Replace(r.URL, r.Name[:4], "aaaa", 1), nil},
		"the site's own name":    {r, "https://" + news + "/", []string{"--connect-to", "::" + gateway.String() + ":443", "-k"}},
		"not the store's either": {r, "https://tenants." + zone + "/", []string{"-k"}},
	} {
		if page, status, err := w.curl(try.files, try.url, try.more...); err == nil || status != 0 {
			t.Errorf("%s: %q, %d", name, page, status)
		}
	}
	for name, more := range map[string][]string{
		"no capability":                  nil,
		"a wrong capability":             {"-b", "__Host-pseudonym=" + strings.Repeat("a", 26)},
		"of another pseudonym":           {"--get", "-d", other.URL[strings.IndexByte(other.URL, '?')+1:]},
		"a cookie in a cross-site image": {"-b", "__Host-pseudonym=" + capability(r), "-H", "Sec-Fetch-Site: cross-site"},
	} {
		if page, status, err := w.curl(r, bare, more...); err != nil || status != 404 || strings.Contains(page, "news") {
			t.Errorf("%s: %q, %d, %v", name, page, status, err)
		}
	}
	if page, status, err := w.curl(r, bare, "-b", "__Host-pseudonym="+capability(r), "-H", "Sec-Fetch-Site: same-origin"); err != nil || status != 200 || page != text(news) {
		t.Errorf("the cookie: %q, %d, %v", page, status, err)
	}
}

func capability(r registered) string { return r.URL[strings.LastIndexByte(r.URL, '=')+1:] }

// certificate returns the server's certificate, as a visitor gets it.
func (w *world) certificate(r registered) []byte {
	w.t.Helper()
	out, err := w.Host("client").Command(w.t.Context(), "curl", append([]string{"-sS", "--max-time", "60", "-o", "/dev/null", "-w", "%{certs}", r.URL}, r.Files()...)...).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(out), "-----BEGIN")
	block, _ := pem.Decode([]byte("-----BEGIN" + text))
	if block == nil {
		w.t.Fatalf("no certificate: %s", out)
	}
	return block.Bytes
}

func TestListRenewRevoke(t *testing.T) {
	w := newWorld(t)
	r := w.get(news)
	visit := func() (string, int, error) { return w.curl(r, r.URL) }
	if out := w.Run("client", "pseudonym", "list"); !strings.Contains(out, r.Name) || !strings.Contains(out, "store."+zone) {
		t.Errorf("list: %s", out)
	}
	old := w.certificate(r)
	w.Run("client", "pseudonym", "renew", news)
	polltest.Await(t, "the sidecar has the new certificate", func() bool { return !bytes.Equal(w.certificate(r), old) })
	if page, _, err := visit(); err != nil || page != text(news) {
		t.Errorf("after renew: %q, %v", page, err)
	}
	if _, talk, err := w.Try("client", "", "pseudonym", "get", news); err == nil || !strings.Contains(talk, "already") {
		t.Errorf("a second pseudonym: %v, %s", err, talk)
	}
	w.Run("client", "pseudonym", "revoke", news)
	if out := w.Run("client", "pseudonym", "list"); strings.Contains(out, r.Name) {
		t.Errorf("list after revoke: %s", out)
	}
	again := w.get(news)
	if again.Name == r.Name {
		t.Error("the same pseudonym again")
	}
	// The tenant leaves the cloud, which a command tells the running store.
	w.Run("cloud", "pseudonym", "tenant", "remove", filepath.Join(w.dir, "cloud.toml"), news)
	polltest.Await(t, "the pseudonyms of the tenant end", func() bool {
		_, _, err := w.curl(again, again.URL)
		return err != nil
	})
	if _, talk, err := w.Try("client", "", "pseudonym", "get", "other.example"); err == nil || !strings.Contains(talk, "does not host it") {
		t.Errorf("a site of another cloud: %v, %s", err, talk)
	}
}

// The operator's commands, with the cloud running.
func TestOperator(t *testing.T) {
	w := newWorld(t)
	r := w.get(news)
	file := filepath.Join(w.dir, "cloud.toml")
	for host, want := range map[string]map[string]string{
		"cloud":  {"keys": "yes", "root-key": "partly", "public-suffix": "partly", "delegation": "yes", "gateway " + gateway.String(): "yes", "clock": "yes", "database": "yes", "hidden-names": "yes", "sidecar " + news: "yes", "sidecar " + shop: "yes"},
		"client": {"keys": "yes", "root-key": "partly", "public-suffix": "partly", "delegation": "yes", "gateway " + gateway.String(): "yes", "clock": "yes", "database": "yes", "hidden-names": "yes", "sidecar " + news: "no", "sidecar " + shop: "no"},
	} {
		var all []struct{ Check, Verdict, What, Hint string }
		if out := w.Run(host, "pseudonym", "doctor", file, "--json"); json.Unmarshal([]byte(out), &all) != nil || len(all) != len(want) {
			t.Errorf("%s: %s", host, out)
		}
		for _, one := range all {
			if one.Verdict != want[one.Check] || one.Verdict != "yes" && one.Hint == "" {
				t.Errorf("%s: %+v, want %s", host, one, want[one.Check])
			}
		}
	}
	if out := w.Run("cloud", "pseudonym", "stats", file); !strings.Contains(out, news) || strings.Contains(out, r.Name) {
		t.Errorf("stats: %s", out)
	}
	zoneFile := w.Run("cloud", "pseudonym", "zone", file)
	if !strings.Contains(zoneFile, "*."+zone) || strings.Contains(zoneFile, r.Name) {
		t.Errorf("zone: %s", zoneFile)
	}
	// A backup is a whole cloud: it knows the pseudonym, and can read its key.
	copied := filepath.Join(t.TempDir(), "copy")
	w.Run("cloud", "pseudonym", "backup", file, copied)
	if out := w.Run("cloud", "pseudonym", "stats", filepath.Join(copied, "cloud.toml"), "--json"); !strings.Contains(out, news) {
		t.Errorf("stats of the backup: %s", out)
	}
	if _, talk, err := w.Try("cloud", "", "pseudonym", "backup", file, copied); err == nil || !strings.Contains(talk, "not there") {
		t.Errorf("a backup over a backup: %v, %s", err, talk)
	}
}

// nginx lets nginx serve a site in place of a sidecar. The cloud finds it at an address.
func (w *world) nginx(host, site, address string, flags ...string) {
	w.t.Helper()
	inside, dir, key := w.Host(host).Addrs()[0], filepath.Join(w.t.TempDir(), "nginx"), filepath.Join(w.t.TempDir(), "tenant.pem")
	id := strings.TrimSpace(w.Run(host, "pseudonym", "tenant", "key", "--identity", key))
	w.Run("cloud", "pseudonym", "tenant", "add", filepath.Join(w.dir, "cloud.toml"), site, "--address", address, "--key", id)
	w.Start(host, "nginx can include", append([]string{"pseudonym", "tenant", "nginx", "--zone", zone, "--store", w.cloud.At(host, site, inside).Store.String(), "--root", filepath.Join(w.dir, "root.pem"),
		"--identity", key, "--to", "http://127.0.0.1:80", "--site", site, "--listen", inside.String() + ":4445", "--nginx-dir", dir, "--gateway-from", netip.PrefixFrom(inside, 24).Masked().String()}, flags...)...)
	if _, err := peer.StartNginx(w.t.Context(), w.Host(host), w.t.TempDir(), "include "+dir+"/nginx.conf;"); err != nil {
		w.t.Fatal(err)
	}
}

// nginx serves a site in place of the sidecar, with certificates of the real store: to the pseudonym's own client alone.
func TestNginx(t *testing.T) {
	w := newWorld(t)
	const other = "paper.example"
	w.nginx("news", other, netip.AddrPortFrom(w.Host("news").Addrs()[0], 4445).String())
	r, stranger, says := w.get(other), w.get(news), text(news) // the server that it has in common with the news
	polltest.Await(t, "the new pseudonym works", func() bool {
		got, status, err := w.curl(r, r.URL)
		return err == nil && status == 200 && got == says
	})
	for name, try := range map[string]struct {
		files registered
		url   string
	}{"no certificate": {registered{}, r.URL}, "another's certificate": {stranger, r.URL}} {
		if got, status, err := w.curl(try.files, try.url); err == nil || status != 0 {
			t.Errorf("%s: %q, %d", name, got, status)
		}
	}
	if _, status, _ := w.curl(r, "https://"+r.Name+"/"); status != 404 {
		t.Errorf("without the capability: %d", status)
	}
	w.Run("client", "pseudonym", "revoke", other)
	polltest.Await(t, "the pseudonym ends", func() bool {
		_, status, err := w.curl(r, r.URL)
		return err != nil && status == 0
	})
}
