package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/internal/netutil"
	"heddle/path"
	"heddle/pseudonym"
	"heddle/pseudonym/address"
	"heddle/pseudonym/cloud"
	"heddle/pseudonym/gateway"
	"heddle/pseudonym/gateway/lead"
	"heddle/pseudonym/gateway/v6switch"
	"heddle/pseudonym/mutual"
	"heddle/pseudonym/store"
	"heddle/pseudonym/tenant"
	"heddle/pseudonym/tenant/defence"
	"heddle/pseudonym/work"
)

// PseudonymCloud is the cloud.toml of an operator. Its keys are no flags, since a database's URL may have a password.
type PseudonymCloud struct {
	Zone        string        `toml:"zone"`           // domain of the pseudonyms
	Keys        string        `toml:"keys"`           // directory of the keys; that of the file if empty
	Database    string        `toml:"database"`       // file of SQLite, or URL of PostgreSQL
	Gateways    []string      `toml:"gateways"`       // addresses that the nameserver gives
	Listen      []string      `toml:"listen"`         // of the gateway, [HOST]:PORT
	DNS         []string      `toml:"dns"`            // of the nameserver, UDP and TCP
	Store       string        `toml:"store"`          // where the store listens, and gateways find it
	Stores      []string      `toml:"stores"`         // where gateways find all stores, if there are several
	Linker      string        `toml:"linker"`         // where the linker listens, and gateways find it
	Linkers     []string      `toml:"linkers"`        // where gateways find all linkers, if there are several
	GatewayMode string        `toml:"gateway-mode"`   // how the gateway leads connections to tenants
	Switch      string        `toml:"gateway-switch"` // what leads the packets of connections that a gateway handed over
	Bridge      string        `toml:"gateway-bridge"` // of Open vSwitch, or the file of its socket, for the switch ovs
	SwitchAt    string        `toml:"switch"`         // unix:FILE, where the switch listens to gateways of its machine, and they find it
	SwitchGroup string        `toml:"switch-group"`   // of this machine, whose processes may use that
	Shares      bool          `toml:"switch-shares"`  // the switch notes in the database what it leads, and leads what others noted
	V6Prefix    string        `toml:"v6-prefix"`      // of pseudo-addresses, a /64 that is routed to the switch; none if empty
	V6Device    string        `toml:"v6-device"`      // where clients' packets arrive at the switch
	GatewayFrom []string      `toml:"gateway-from"`   // networks that gateways come from to the store and the linker, CIDR
	Tenants     string        `toml:"tenants"`        // where sidecars ask the store
	Life        time.Duration `toml:"life"`           // of a pseudonym, until it is renewed
	Most        int           `toml:"most"`           // pseudonyms of one person
	Work        int           `toml:"work"`           // two to the power of it is what a proof of work costs, in hashes; 0 for none
	Login       string        `toml:"login"`          // URL of a provider of accounts (OpenID Connect); people need none if empty
	LoginClient string        `toml:"login-client"`   // how the provider knows the store
	LoginSecret string        `toml:"login-secret"`   // file of what proves that to the provider
	Certificate string        `toml:"certificate"`    // file with the public certificate of the store's and the linker's plain names
	Key         string        `toml:"key"`            // file of its key
	Audit       string        `toml:"audit"`          // file of the audit log; none if empty
	Metrics     string        `toml:"metrics"`        // where Prometheus asks, [HOST]:PORT; nowhere if empty
}

// DefaultPseudonymCloud returns the default settings, which lack the zone and the gateways' addresses.
func DefaultPseudonymCloud() PseudonymCloud {
	return PseudonymCloud{Database: "pseudonyms.db", Listen: []string{":443"}, DNS: []string{":53"}, Store: "127.0.0.1:4480", Linker: "127.0.0.1:4482", GatewayMode: string(gateway.Auto), Switch: string(lead.Auto), GatewayFrom: loopback(),
		Tenants: ":4481", Life: store.DefaultLife, Most: store.DefaultMost, Work: store.DefaultWork, Audit: "audit.log"}
}

func loopback() []string { return []string{"127.0.0.0/8", "::1/128"} }

// LoadPseudonymCloud reads a cloud.toml. It fails with all its [Problems].
func LoadPseudonymCloud(file string) (PseudonymCloud, error) {
	c := DefaultPseudonymCloud()
	err := loadFlat(file, &c, func() problems { return c.problems() })
	dir := filepath.Dir(file)
	besideFiles(dir, &c.LoginSecret, &c.Audit, &c.Certificate, &c.Key)
	if besideFiles(dir, &c.Keys); c.Keys == "" {
		c.Keys = dir
	}
	if !strings.Contains(c.Database, "://") {
		besideFiles(dir, &c.Database)
	}
	return c, err
}

func (c PseudonymCloud) problems() problems {
	wrong := problems{}
	_, err := pseudonym.ParseZone(c.Zone)
	wrong.add("zone", err)
	if len(c.Gateways) == 0 {
		wrong.say("gateways", "the nameserver has no address to give", "the public addresses of your gateways, such as [\"192.0.2.1\"]")
	}
	checkEach(wrong, "gateways", c.Gateways, func(text string) error {
		_, err := netip.ParseAddr(text)
		return hinted(err, "such as 192.0.2.1")
	})
	checkEach(wrong, "listen", c.Listen, checkListen)
	checkEach(wrong, "dns", c.DNS, checkListen)
	if !slices.Contains(gateway.Modes(), c.GatewayMode) {
		wrong.say("gateway-mode", c.GatewayMode+" is not known", "one of "+strings.Join(gateway.Modes(), ", "))
	}
	if !slices.Contains(lead.Kinds(), c.Switch) {
		wrong.say("gateway-switch", c.Switch+" is not known", "one of "+strings.Join(lead.Kinds(), ", "))
	}
	switch is := lead.Kind(c.Switch) == lead.OVS; {
	case is && c.Bridge == "":
		wrong.say("gateway-bridge", "gateway-switch ovs needs it", "the bridge of Open vSwitch that joins clients, tenants and this machine, such as br0")
	case !is && c.Bridge != "":
		wrong.say("gateway-bridge", "gateway-switch "+c.Switch+" does not use it", "gateway-switch = \"ovs\"")
	}
	c.switchProblems(wrong)
	c.addressProblems(wrong)
	checkEach(wrong, "gateway-from", c.GatewayFrom, checkNetwork)
	wrong.add("store", checkStore(c.Store))
	wrong.add("linker", checkHostPort(c.Linker, "such as 127.0.0.1:4482"))
	checkEach(wrong, "stores", c.Stores, checkStore)
	checkEach(wrong, "linkers", c.Linkers, checkStore)
	wrong.add("tenants", checkListen(c.Tenants))
	checkMetrics(wrong, c.Metrics)
	if c.Life < time.Hour {
		wrong.say("life", fmt.Sprintf("%v is less than an hour", c.Life), "such as 2160h, which is 90 days")
	}
	if c.Most < 1 {
		wrong.say("most", fmt.Sprintf("%d is less than 1", c.Most), "leave it out for the default")
	}
	if c.Work != 0 && (c.Work < work.MinBits || c.Work > work.MaxBits) {
		wrong.say("work", fmt.Sprintf("%d is not 0, nor %d to %d", c.Work, work.MinBits, work.MaxBits), "leave it out for the default; 0 takes no proofs of work")
	}
	if (c.Certificate == "") != (c.Key == "") {
		wrong.say("certificate", "it needs key, and key needs it", "such as certificate = \"fullchain.pem\" and key = \"privkey.pem\"")
	}
	c.loginProblems(wrong)
	return wrong
}

func (c PseudonymCloud) switchProblems(wrong problems) {
	file, ok := netutil.UnixFile(c.SwitchAt)
	mode := gateway.Mode(c.GatewayMode)
	moves := mode == gateway.Auto || mode == gateway.Handoff
	if c.Shares && !moves {
		wrong.say("switch-shares", "gateway-mode "+c.GatewayMode+" does not use it", "gateway-mode = \"auto\" or \"handoff\"")
	}
	switch {
	case c.SwitchAt == "" && c.SwitchGroup != "":
		wrong.say("switch-group", "nobody listens for it", "it goes with switch = \"unix:FILE\"")
	case c.SwitchAt == "":
	case !ok:
		wrong.say("switch", c.SwitchAt+" is no socket of this machine", "such as unix:/run/heddle-switch/socket")
	case !moves:
		wrong.say("switch", "gateway-mode "+c.GatewayMode+" does not use it", "gateway-mode = \"auto\" or \"handoff\"")
	default:
		wrong.add("switch", checkUnixFile("switch", file))
	}
}

func (c PseudonymCloud) addressProblems(wrong problems) {
	mode := gateway.Mode(c.GatewayMode)
	if c.V6Prefix == "" {
		if c.V6Device != "" {
			wrong.say("v6-device", "it needs v6-prefix", "an IPv6 prefix of /64 that is routed to the switch, such as 2001:db8:77:1::/64")
		}
		if mode == gateway.V6 {
			wrong.say("v6-prefix", "it is missing, and gateway-mode v6 needs it", "an IPv6 prefix of /64 that is routed to the switch, such as 2001:db8:77:1::/64")
		}
		return
	}
	if p, err := netip.ParsePrefix(c.V6Prefix); err != nil || !address.ValidPrefix(p) {
		wrong.say("v6-prefix", c.V6Prefix+" is not an IPv6 prefix of /64", "such as 2001:db8:77:1::/64")
	}
	if mode != gateway.V6 && mode != gateway.Auto {
		wrong.say("v6-prefix", "gateway-mode "+c.GatewayMode+" does not use it", "gateway-mode = \"auto\" or \"v6\"")
	}
	if len(c.Listen) > v6switch.MostPorts {
		wrong.say("listen", fmt.Sprintf("a switch leads %d ports at most", v6switch.MostPorts), "list fewer")
	}
}

// ports returns the ports that the gateway listens on.
func (c PseudonymCloud) ports() (all []uint16) {
	for _, text := range c.Listen {
		if _, port, err := net.SplitHostPort(text); err == nil {
			if n, err := strconv.ParseUint(port, 10, 16); err == nil && !slices.Contains(all, uint16(n)) {
				all = append(all, uint16(n))
			}
		}
	}
	return all
}

func (c PseudonymCloud) loginProblems(wrong problems) {
	if c.Login == "" {
		if c.LoginClient != "" || c.LoginSecret != "" {
			wrong.say("login", "the URL of the provider is missing", "such as https://accounts.example")
		}
		return
	}
	u, err := url.Parse(c.Login)
	switch {
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		wrong.say("login", fmt.Sprintf("%q is no URL of a provider", c.Login), "such as https://accounts.example")
	case u.Scheme != "https" && !(u.Scheme == "http" && onLoopback(u.Hostname())):
		wrong.say("login", "it is not HTTPS, so a network could log in as anybody", "such as https://accounts.example")
	}
	if c.LoginClient == "" {
		wrong.say("login-client", "it is missing", "the name under which the provider of accounts knows this store")
	}
}

func checkMetrics(wrong problems, address string) {
	if address != "" {
		wrong.add("metrics", checkListen(address))
	}
}

func checkEach(wrong problems, key string, all []string, check func(string) error) {
	for i, one := range all {
		wrong.add(fmt.Sprintf("%s[%d]", key, i), check(one))
	}
}

func checkStore(text string) error { return checkHostPort(text, "such as 127.0.0.1:4480") }

func checkNetwork(text string) error {
	_, err := netip.ParsePrefix(text)
	return hinted(err, "such as 10.0.0.0/8")
}

// networks parses what checkNetwork has seen.
func networks(all []string) (parsed []netip.Prefix) {
	for _, text := range all {
		if p, err := netip.ParsePrefix(text); err == nil {
			parsed = append(parsed, p)
		}
	}
	return parsed
}

// Options returns the settings as the cloud takes them, without a log.
func (c PseudonymCloud) Options() (cloud.Options, error) {
	zone, err := pseudonym.ParseZone(c.Zone)
	o := cloud.Options{Zone: zone, Dir: c.Keys, Database: c.Database, Stores: orOne(c.Stores, c.Store), Linkers: orOne(c.Linkers, c.Linker), From: networks(c.GatewayFrom), Life: c.Life, Most: c.Most,
		Work: c.Work, Login: c.Login, Client: c.LoginClient, Secret: c.LoginSecret, Audit: c.Audit, Mode: gateway.Mode(c.GatewayMode), Switch: lead.Kind(c.Switch), Bridge: c.Bridge, Shares: c.Shares, Device: c.V6Device, Ports: c.ports(), Certificate: c.Certificate, Key: c.Key}
	o.SwitchAt, _ = netutil.UnixFile(c.SwitchAt)
	if p, err := netip.ParsePrefix(c.V6Prefix); err == nil {
		o.Prefix = p
	}
	for _, text := range c.Gateways {
		if a, err := netip.ParseAddr(text); err == nil {
			o.Gateways = append(o.Gateways, a)
		}
	}
	return o, err
}

// orOne returns one if there are no others.
func orOne(all []string, one string) []string {
	if len(all) == 0 {
		return []string{one}
	}
	return all
}

// onLoopback reports whether a host is an address of this machine alone.
func onLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// PseudonymTenant is the tenant.toml of a sidecar, or the flags of `heddle pseudonym tenant run`.
type PseudonymTenant struct {
	Zone         string   `toml:"zone" help:"the cloud's <DOMAIN>"`
	Store        []string `toml:"store" help:"where the cloud's store answers sidecars, <HOST:PORT>; each of them if there are several"`
	Root         string   `toml:"root" help:"the cloud's root certificate, a PEM <FILE>" complete:"file"`
	Identity     string   `toml:"identity" help:"the <FILE> of the sidecar's private key, which heddle pseudonym tenant key makes" complete:"file"`
	To           string   `toml:"to" help:"the site's own web server, <URL>; or HOST:PORT or unix:FILE of a server that speaks something else"`
	Listen       string   `toml:"listen" help:"where gateways come to, <[HOST]:PORT>; or unix:FILE for those of this machine, which pass connections themselves"`
	GatewayFrom  []string `toml:"gateway-from" help:"networks that gateways come from, <CIDR>: they tell who the client is"`
	GatewayGroup string   `toml:"gateway-group" help:"the <GROUP> of this machine that may pass connections at unix:FILE"`
	Trusts       []string `toml:"trusts" help:"a <SITE> of the cloud whose links may lead to pseudonyms of this one"`
	Defence      string   `toml:"defence" help:"hide the sizes of what pages load by <STRATEGY>: {defences}" complete:"defences"`
	Rewrite      []string `toml:"rewrite" help:"replace the site's name in <KIND> too: {rewrites}" complete:"rewrites" list:"commas"`
	Site         string   `toml:"site" help:"the site's own <NAME>, for nginx"`
	ListenV6     string   `toml:"listen-v6" help:"where clients come to nginx by pseudo-addresses, without a gateway, <[HOST]:PORT>"`
	NginxDir     string   `toml:"nginx-dir" help:"where nginx's configuration and certificates are kept, <DIR>" complete:"dir"`
	Size         int      `toml:"size" help:"how many pseudonyms are kept in memory, some 4 kB each"`
	Metrics      string   `toml:"metrics" help:"answer Prometheus at <[HOST]:PORT>"`
}

// DefaultPseudonymTenant returns the default settings.
func DefaultPseudonymTenant() PseudonymTenant {
	return PseudonymTenant{Root: "root.pem", Identity: "tenant.pem", Listen: ":4443", NginxDir: "/var/lib/heddle-tenant/nginx", GatewayFrom: loopback(), Defence: defence.None, Size: mutual.DefaultSize}
}

// LoadPseudonymTenant reads a tenant.toml. It fails with all its [Problems].
func LoadPseudonymTenant(file string) (PseudonymTenant, error) {
	t := DefaultPseudonymTenant()
	err := loadFlat(file, &t, func() problems { return t.problems() })
	besideFiles(filepath.Dir(file), &t.Root, &t.Identity)
	return t, err
}

func (t PseudonymTenant) problems() problems {
	wrong := problems{}
	_, err := pseudonym.ParseZone(t.Zone)
	wrong.add("zone", err)
	if len(t.Store) == 0 {
		wrong.say("store", "no HOST:PORT is given", "such as 192.0.2.1:4481")
	}
	checkEach(wrong, "store", t.Store, func(text string) error { return checkHostPort(text, "such as 192.0.2.1:4481") })
	_, stream, err := t.Target()
	wrong.add("to", err)
	if stream != "" && t.Defence != defence.None {
		wrong.say("defence", "it is for pages, and "+t.To+" is no web server", "leave it out")
	}
	wrong.add("listen", checkSidecarListen(t.Listen))
	if _, ok := netutil.UnixFile(t.Listen); t.GatewayGroup != "" && !ok {
		wrong.say("gateway-group", "gateways pass no connections at "+t.Listen, "it goes with listen = \"unix:FILE\"")
	}
	checkMetrics(wrong, t.Metrics)
	checkEach(wrong, "gateway-from", t.GatewayFrom, checkNetwork)
	checkEach(wrong, "trusts", t.Trusts, func(text string) error {
		_, err := pseudonym.ParseHost(text)
		return err
	})
	_, err = defence.Parse(t.Defence)
	wrong.add("defence", err)
	for i, kind := range t.Rewrite {
		if !slices.Contains(tenant.Rewrites(), kind) {
			wrong.say(fmt.Sprintf("rewrite[%d]", i), kind+" is not known", "one of "+strings.Join(tenant.Rewrites(), ", "))
		}
	}
	if t.Site != "" {
		_, err := pseudonym.ParseHost(t.Site)
		wrong.add("site", err)
	}
	if t.ListenV6 != "" {
		wrong.add("listen-v6", checkListen(t.ListenV6))
	}
	if t.Size < 1 {
		wrong.say("size", fmt.Sprintf("%d is less than 1", t.Size), "leave it out for the default")
	}
	return wrong
}

// checkSidecarListen checks [HOST]:PORT or unix:FILE.
func checkSidecarListen(text string) error {
	if file, ok := netutil.UnixFile(text); ok {
		return checkUnixFile(text, file)
	}
	return checkListen(text)
}

// CheckSidecar checks where gateways find a sidecar, HOST:PORT or unix:FILE, or its agent, handoff:HOST:PORT or handoff-direct:HOST:PORT; or
// what a switch leads to, v6:ADDRESS.
func CheckSidecar(what, text string) error {
	if agent, _, ok := gateway.AgentAddress(text); ok {
		return CheckHostPort(what, agent, "such as handoff:192.0.2.7:4444")
	}
	if strings.HasPrefix(text, gateway.V6Prefix) {
		if _, ok := gateway.V6Address([]string{text}); !ok {
			return &path.Error{What: what, Why: text + " has no address of IPv6", Hint: "such as v6:2001:db8:1::7"}
		}
		return nil
	}
	if file, ok := netutil.UnixFile(text); ok {
		return checkUnixFile(what, file)
	}
	return CheckHostPort(what, text, "such as 192.0.2.7:4443, or unix:/run/heddle-news.sock on the gateway's machine")
}

// checkUnixFile wants a whole path: gateways and sidecars run in different directories.
func checkUnixFile(what, file string) error {
	if !filepath.IsAbs(file) {
		return &path.Error{What: what, Why: fmt.Sprintf("unix:%s has no whole path", file), Hint: "such as unix:/run/heddle-news.sock"}
	}
	return nil
}

// CheckNginx is [PseudonymTenant.Check] for nginx in place of the sidecar, which can do more.
func (t PseudonymTenant) CheckNginx() error {
	wrong := t.problems()
	_, stream, _ := t.Target()
	_, unixListen := netutil.UnixFile(t.Listen)
	switch {
	case t.Site == "":
		wrong.say("site", "nginx needs the site's own name", "such as news.example")
	case t.ListenV6 == t.Listen:
		wrong.say("listen-v6", t.Listen+" is where gateways come to, which say who the client is", "another port")
	case unixListen:
		wrong.say("listen", "nginx takes over no connections", "such as :4443")
	case stream != "":
		wrong.say("to", "nginx serves web servers alone", "heddle pseudonym tenant run")
	case t.Defence != defence.None:
		wrong.say("defence", "nginx has none", "heddle pseudonym tenant run")
	case len(t.Rewrite) > 0:
		wrong.say("rewrite", "nginx changes pages and style sheets alone", "heddle pseudonym tenant run")
	}
	return wrong.first()
}

// Check returns the first error of the flags, named by its flag.
func (t PseudonymTenant) Check() error { return t.problems().first() }

// Target returns the URL of the site's own web server, or where its server of another kind is, HOST:PORT or unix:FILE.
func (t PseudonymTenant) Target() (web *url.URL, stream string, err error) {
	if !strings.Contains(t.To, "://") {
		if file, ok := strings.CutPrefix(t.To, "unix:"); ok && file != "" {
			return nil, t.To, nil
		}
		return nil, t.To, checkHostPort(t.To, "http://127.0.0.1:8080 for a web server; 127.0.0.1:143 or unix:/run/app.sock for others")
	}
	u, err := url.Parse(t.To)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, "", &path.Error{What: t.To, Why: fmt.Sprintf("%q is no URL of a web server", t.To), Hint: "such as http://127.0.0.1:8080"}
	}
	return u, "", nil
}

// Gateways returns the networks that gateways come from.
func (t PseudonymTenant) Gateways() []netip.Prefix { return networks(t.GatewayFrom) }
