package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/pseudonym/gateway"
)

func TestPseudonymCloud(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "cloud.toml")
	load := func(text string) (PseudonymCloud, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return LoadPseudonymCloud(file)
	}
	c, err := load("zone = \"Cloud.Example.\"\ngateways = [\"192.0.2.1\", \"2001:db8::1\"]\nlife = \"24h\"\n")
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.Options()
	if err != nil || o.Zone != "cloud.example" || o.Dir != dir || o.Database != filepath.Join(dir, "pseudonyms.db") || len(o.Gateways) != 2 || o.Life != 24*time.Hour ||
		len(o.From) != 2 || o.Mode != gateway.Auto || o.Audit != filepath.Join(dir, "audit.log") {
		t.Errorf("%+v, %v", o, err)
	}
	if c, err := load("zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nkeys = \"keys\"\ndatabase = \"postgres://db/heddle\"\n"); err != nil || c.Keys != filepath.Join(dir, "keys") ||
		c.Database != "postgres://db/heddle" {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = load("zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nwork = 0\nlogin = \"http://127.0.0.1:99/oidc\"\nlogin-client = \"me\"\nlogin-secret = \"secret\"\n")
	if o, bad := c.Options(); err != nil || bad != nil || o.Work != 0 || o.Login != "http://127.0.0.1:99/oidc" || o.Client != "me" || o.Secret != filepath.Join(dir, "secret") {
		t.Errorf("%+v, %v, %v", o, err, bad)
	}
	for _, c := range []struct{ text, what string }{
		{"zone = \"cloud\"\ngateways = [\"192.0.2.1\"]", "no dot"},
		{"zone = \"a.example\"", "no address to give"},
		{"zone = \"a.example\"\ngateways = [\"cloud\"]", "ParseAddr"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nlife = \"1s\"", "less than an hour"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nmost = 0", "less than 1"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nstore = \"x\"", "not HOST:PORT"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nlinker = \"x\"", "not HOST:PORT"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nstores = [\"x\"]", "not HOST:PORT"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nlinkers = [\"x\"]", "not HOST:PORT"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\ngateway-from = [\"x\"]", "no '/'"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\ngateway-mode = \"x\"", "one of auto, v6, handoff, fdpass, proxy"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\ngateway-switch = \"x\"", "one of auto, bpf, nft, ovs"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\ngateway-switch = \"ovs\"", "gateway-switch ovs needs it"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nswitch = \"127.0.0.1:1\"", "is no socket of this machine"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nswitch = \"unix:socket\"", "has no whole path"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nswitch = \"unix:/run/socket\"\ngateway-mode = \"proxy\"", "gateway-mode proxy does not use it"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\ngateway-mode = \"fdpass\"\nswitch-shares = true", "gateway-mode fdpass does not use it"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nswitch-group = \"x\"", "nobody listens for it"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\ngateway-bridge = \"br0\"", "gateway-switch auto does not use it"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\ngateway-mode = \"v6\"", "gateway-mode v6 needs it"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nv6-prefix = \"2001:db8::/48\"", "is not an IPv6 prefix of /64"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nv6-prefix = \"2001:db8::/64\"\ngateway-mode = \"proxy\"", "does not use it"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nv6-device = \"eth0\"", "it needs v6-prefix"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\ncolour = 1", "colour"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nmetrics = \"x\"", "not HOST:PORT"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\ncertificate = \"x\"", "it needs key"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nwork = 2", "is not 0"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nlogin = \"http://accounts.example\"\nlogin-client = \"x\"", "not HTTPS"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nlogin = \"accounts.example\"\nlogin-client = \"x\"", "no URL of a provider"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nlogin = \"https://accounts.example\"", "the name under which the provider"},
		{"zone = \"a.example\"\ngateways = [\"192.0.2.1\"]\nlogin-client = \"x\"", "provider is missing"},
	} {
		if _, err := load(c.text); err == nil || !strings.Contains(err.Error(), c.what) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}

func TestPseudonymTenant(t *testing.T) {
	text, err := os.ReadFile("../dist/tenant.toml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tenant.toml")
	load := func(text string) (PseudonymTenant, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return LoadPseudonymTenant(file)
	}
	s, err := load(string(text))
	if err != nil || s.Root != filepath.Join(filepath.Dir(file), "root.pem") || len(s.Gateways()) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if web, stream, err := s.Target(); err != nil || web.Host != "127.0.0.1:8080" || stream != "" {
		t.Errorf("%v, %s, %v", web, stream, err)
	}
	for _, at := range []string{"127.0.0.1:143", "unix:/run/app.sock"} {
		s, err := load(strings.Replace(string(text), "http://127.0.0.1:8080", at, 1))
		if err != nil {
			t.Fatal(err)
		}
		if web, stream, err := s.Target(); err != nil || web != nil || stream != at {
			t.Errorf("%v, %s, %v", web, stream, err)
		}
	}
	if _, err := load(strings.Replace(string(text), "\":4443\"", "\"unix:/run/heddle-news/sidecar\"\ngateway-group = \"gateways\"", 1)); err != nil {
		t.Errorf("a group at a socket: %v", err)
	}
	pages := strings.NewReplacer("http://127.0.0.1:8080", "127.0.0.1:143", "defence = \"none\"", "defence = \"pieces\"").Replace(string(text))
	if _, err := load(pages); err == nil || !strings.Contains(err.Error(), "no web server") {
		t.Errorf("a defence of pages without pages: %v", err)
	}
	for _, c := range []struct{ from, to, what string }{
		{"http://127.0.0.1:8080", "ftp://127.0.0.1:8080", "no URL of a web server"},
		{"http://127.0.0.1:8080", "127.0.0.1", "not HOST:PORT"},
		{"http://127.0.0.1:8080", "unix:", "not HOST:PORT"},
		{"defence = \"none\"", "defence = \"magic\"", "no such strategy"},
		{"trusts = []", "trusts = [\"*\"]", "no host name"},
		{"192.0.2.1:4481", "192.0.2.1", "not HOST:PORT"},
		{"[\"192.0.2.1:4481\"]", "[]", "no HOST:PORT is given"},
		{"size = 10000", "size = 0", "less than 1"},
		{"size = 10000", "metrics = \"x\"", "not HOST:PORT"},
		{"rewrite = []", "rewrite = [\"pages\"]", "one of json, scripts"},
		{"site = \"news.example\"", "site = \"*\"", "no host name"},
		{"size = 10000", "gateway-group = \"gateways\"", "gateways pass no connections at :4443"},
	} {
		if _, err := load(strings.Replace(string(text), c.from, c.to, 1)); err == nil || !strings.Contains(err.Error(), c.what) {
			t.Errorf("%q: %v", c.to, err)
		}
	}
}

// nginx can do less than a sidecar, and what it cannot is refused.
func TestPseudonymTenantNginx(t *testing.T) {
	good := DefaultPseudonymTenant()
	good.Zone, good.Store, good.To, good.Site = "cloud.example", []string{"192.0.2.1:4481"}, "http://127.0.0.1:8080", "news.example"
	good.ListenV6 = "[::]:443"
	if err := good.CheckNginx(); err != nil {
		t.Error(err)
	}
	for what, edit := range map[string]func(*PseudonymTenant){
		"site":    func(p *PseudonymTenant) { p.Site = "" },
		"to":      func(p *PseudonymTenant) { p.To = "127.0.0.1:143" },
		"defence": func(p *PseudonymTenant) { p.Defence = "pieces" },
		"rewrite": func(p *PseudonymTenant) { p.Rewrite = []string{"json"} },
		"v6":      func(p *PseudonymTenant) { p.ListenV6 = p.Listen },
		"v6 port": func(p *PseudonymTenant) { p.ListenV6 = "443" },
	} {
		bad := good
		if edit(&bad); bad.CheckNginx() == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

func TestPseudonymAgent(t *testing.T) {
	key := "sha256:" + strings.Repeat("0a", 32)
	file := filepath.Join(t.TempDir(), "agent.toml")
	load := func(text string) (PseudonymAgent, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return LoadPseudonymAgent(file)
	}
	a, err := load("gateway-key = \"" + key + "\"\nto = \"unix:/run/news\"\nidentity = \"key.pem\"\ndirect = [\"192.0.2.1\", \"2001:db8::1\"]")
	if got, bad := a.Gateways(); err != nil || bad != nil || got.String() != key || a.Sidecar() != "/run/news" || a.Listen != ":4444" || a.Identity != filepath.Join(filepath.Dir(file), "key.pem") {
		t.Errorf("%+v, %v, %v", a, err, bad)
	}
	if all, err := a.DirectAddresses(); err != nil || fmt.Sprint(all) != "[192.0.2.1 2001:db8::1]" {
		t.Errorf("direct %v, %v", all, err)
	}
	for to, server := range map[string]string{"proxy:127.0.0.1:4443": "127.0.0.1:4443", "proxy:unix:/run/news": "unix:/run/news"} {
		if a, err := load("gateway-key = \"" + key + "\"\nto = \"" + to + "\""); err != nil || a.Server() != server || a.Sidecar() != "" {
			t.Errorf("%s: server %q, sidecar %q, %v", to, a.Server(), a.Sidecar(), err)
		}
	}
	for change, what := range map[string]string{
		"gateway-key = \"x\"\nto = \"unix:/run/news\"":                             "pseudonym gateway-key prints it",
		"gateway-key = \"" + key + "\"\nto = \"127.0.0.1:1\"":                      "neither unix:FILE nor proxy:ADDRESS",
		"gateway-key = \"" + key + "\"\nto = \"proxy:nobody\"":                     "such as proxy:127.0.0.1:4443",
		"gateway-key = \"" + key + "\"\nto = \"proxy:unix:news\"":                  "no whole path",
		"gateway-key = \"" + key + "\"\nto = \"unix:news\"":                        "no whole path",
		"gateway-key = \"" + key + "\"\nto = \"unix:/run/news\"\nlisten = \"x\"":   "not HOST:PORT",
		"gateway-key = \"" + key + "\"\nto = \"unix:/run/news\"\ndirect = [\"x\"]": "such as 192.0.2.1",
	} {
		if _, err := load(change); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %v", change, err)
		}
	}
}
