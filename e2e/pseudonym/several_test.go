package pseudonym

import (
	"context"
	"fmt"
	"html"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"heddle/internal/pgtest"
	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// gateways are the public addresses of a cloud of [newTwins].
var gateways = []netip.Addr{gateway, gateway.Next()}

// Parts of a cloud of [newTwins]. Each is a process.
const (
	storePart   = "store"
	gatewayPart = "gateway"
	dnsPart     = "dns"
	sidecarPart = "sidecar"
)

// twins is a cloud that has two processes of each part, which share a PostgreSQL, and one site.
type twins struct {
	world
	parts    map[string][2]*peer.Process
	metrics  map[string][2]string // where each says its numbers, on its host
	sidecars [2]netip.AddrPort
	postgres *pgtest.Server
}

// newTwins starts a cloud.
func newTwins(t *testing.T) *twins {
	t.Helper()
	t.Parallel()
	postgres := pgtest.Start(t)
	database := postgres.Database(t)
	spec := lab.Cloud("cloud", "news")
	spec.Hosts[0].Nameservers = gateways
	spec.Links[1].B.Addrs = append(spec.Links[1].B.Addrs, netip.PrefixFrom(gateways[1], 24))
	w := &twins{world: world{Overlay: labtest.UpOverlay(t, spec), t: t, dir: filepath.Join(t.TempDir(), "cloud")}, parts: map[string][2]*peer.Process{}, metrics: map[string][2]string{}, postgres: postgres}
	var err error
	if w.cloud, err = peer.NewCloud(t.Context(), w.Overlay.Overlay, w.dir, gateway); err != nil {
		t.Fatal(err)
	}
	for i, part := range []string{storePart, gatewayPart, dnsPart} {
		w.serve(i, part, database)
	}
	w.host(database)
	return w
}

// ports of the first and the second store, on the host of the cloud.
var (
	storePorts  = [2]int{4480, 5480}
	linkPorts   = [2]int{4482, 5482}
	tenantPorts = [2]int{4481, 5481}
)

// settings writes the cloud.toml of one process.
func (w *twins) settings(twin int, part, metrics, database string) (file string) {
	w.t.Helper()
	text, err := os.ReadFile(w.cloud.File())
	if err != nil {
		w.t.Fatal(err)
	}
	own := func(ports [2]int) string { return fmt.Sprintf("127.0.0.1:%d", ports[twin]) }
	both := func(ports [2]int) string { return fmt.Sprintf(`["127.0.0.1:%d", "127.0.0.1:%d"]`, ports[0], ports[1]) }
	for _, change := range [][2]string{
		{`"` + gateway.String() + `"`, fmt.Sprintf("%q, %q", gateways[0], gateways[1])},
		{`":443"`, fmt.Sprintf(`"%v:443"`, gateways[twin])},
		{`":53"`, fmt.Sprintf(`"%v:53"`, gateways[twin])},
		{`store = "127.0.0.1:4480"`, fmt.Sprintf("store = %q\nstores = %s", own(storePorts), both(storePorts))},
		{`linker = "127.0.0.1:4482"`, fmt.Sprintf("linker = %q\nlinkers = %s", own(linkPorts), both(linkPorts))},
		{`":4481"`, fmt.Sprintf(`":%d"`, tenantPorts[twin])},
		{`"pseudonyms.db"`, strconv.Quote(database)},
		{`"audit.log"`, fmt.Sprintf(`"audit-%d.log"`, twin)},
		{`# metrics = "127.0.0.1:9480"`, fmt.Sprintf("metrics = %q", metrics)},
	} {
		if !strings.Contains(string(text), change[0]) {
			w.t.Fatalf("cloud.toml has no %s:\n%s", change[0], text)
		}
		text = []byte(strings.Replace(string(text), change[0], change[1], 1))
	}
	file = w.file(part, twin)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// serve starts both processes of a part.
func (w *twins) serve(i int, part, database string) {
	w.t.Helper()
	var running [2]*peer.Process
	var metrics [2]string
	for twin := range running {
		metrics[twin] = fmt.Sprintf("127.0.0.1:%d", 9480+2*i+twin)
		running[twin] = w.run(part, w.settings(twin, part, metrics[twin], database))
	}
	w.parts[part], w.metrics[part] = running, metrics
}

// run starts a process of a part.
func (w *twins) run(part, file string) *peer.Process {
	w.t.Helper()
	args := []string{"pseudonym", "serve", file, "--only", part}
	if part == storePart {
		args = append(args, "--only", "linker")
	}
	return w.Start("cloud", "serving "+zone, args...)
}

// restart ends a process of a part and starts it again.
func (w *twins) restart(part string, twin int) {
	w.t.Helper()
	w.parts[part][twin].Kill()
	running := w.parts[part]
	running[twin] = w.run(part, w.file(part, twin))
	w.parts[part] = running
}

// file is the cloud.toml of one process.
func (w *twins) file(part string, twin int) string {
	return filepath.Join(w.dir, fmt.Sprintf("%s-%d.toml", part, twin))
}

// host starts the site's server and its two sidecars, which have one key; and one of the shop, which says that the shop trusts the news.
func (w *twins) host(database string) {
	w.t.Helper()
	inside := w.Host("news").Addrs()[0]
	near := inside.Prev()
	w.webServer(news, "news")
	w.sidecars = [2]netip.AddrPort{netip.AddrPortFrom(inside, 4443), netip.AddrPortFrom(inside, 5443)}
	key := filepath.Join(w.t.TempDir(), "tenant.pem")
	id := strings.TrimSpace(w.Run("news", "pseudonym", "tenant", "key", "--identity", key))
	file := w.settings(0, "command", "127.0.0.1:0", database)
	otherKey, otherAt := filepath.Join(w.t.TempDir(), "other.pem"), netip.AddrPortFrom(inside, 6443)
	other := strings.TrimSpace(w.Run("news", "pseudonym", "tenant", "key", "--identity", otherKey))
	w.Run("cloud", "pseudonym", "tenant", "add", file, shop, "--address", otherAt.String(), "--key", other)
	w.Run("cloud", "pseudonym", "tenant", "add", file, news, "--address", w.sidecars[0].String(), "--address", w.sidecars[1].String(), "--key", id)
	if out := w.Run("cloud", "pseudonym", "tenant", "list", file); !strings.Contains(out, fmt.Sprintf("%v, %v", w.sidecars[0], w.sidecars[1])) {
		w.t.Errorf("tenant list: %s", out)
	}
	sidecar := func(key string, at netip.AddrPort, more ...string) *peer.Process {
		return w.Start("news", "listening on", append([]string{"pseudonym", "tenant", "run", "--zone", zone, "--root", w.cloud.Root(), "--identity", key, "--to", "http://127.0.0.1:80",
			"--store", fmt.Sprintf("%v:%d", near, tenantPorts[0]), "--store", fmt.Sprintf("%v:%d", near, tenantPorts[1]), "--listen", at.String(),
			"--gateway-from", netip.PrefixFrom(near, near.BitLen()).String()}, more...)...)
	}
	var running [2]*peer.Process
	for twin := range running {
		running[twin] = sidecar(key, w.sidecars[twin])
	}
	w.parts[sidecarPart] = running
	sidecar(otherKey, otherAt, "--trusts", news)
}

// visit visits by one gateway, or by any for -1.
func (w *twins) visit(r registered, twin int) (ok, refused bool) {
	w.t.Helper()
	var more []string
	if twin >= 0 {
		more = []string{"--connect-to", "::" + gateways[twin].String() + ":443"}
	}
	page, status, err := w.curl(r, r.URL, more...)
	return err == nil && page == text(news), err != nil && status == 0
}

// near visits one sidecar as a gateway does.
func (w *twins) near(r registered, twin int) (ok, refused bool) {
	w.t.Helper()
	out, err := w.Host("cloud").Command(w.t.Context(), "curl", append([]string{"-sS", "--max-time", "60", "--haproxy-protocol", "--connect-to", "::" + w.sidecars[twin].String(), r.URL}, r.Files()...)...).Output()
	return err == nil && string(out) == text(news), err != nil && len(out) == 0
}

// link follows a link in a page of the news to the shop, and fails unless the linker leads to the client's own pseudonym of that.
func (w *twins) link(from, to registered) error {
	page, _, err := w.curl(from, from.To("/links.html"))
	links := toLinker.FindAllString(page, -1)
	if err != nil || len(links) == 0 {
		return fmt.Errorf("the page has no link to the shop: %w, %s", err, page)
	}
	entrance := registered{Dir: filepath.Join(filepath.Dir(from.Dir), "store."+zone)} // by which the linker knows the person
	page, status, err := w.curl(entrance, html.UnescapeString(links[0]), "-D", "-")
	if err != nil || status != 303 || !strings.Contains(page, "https://"+to.Name+"/") {
		return fmt.Errorf("the linker answers %d, %w: %s", status, err, page)
	}
	return nil
}

// number asks a process of the cloud for one of its metrics, 0 for none.
func (w *twins) number(part string, twin int, name string) float64 {
	w.t.Helper()
	return number(&w.world, w.metrics[part][twin], name)
}

// number is one of the metrics of a process on the cloud's host.
func number(w *world, at, name string) (n float64) {
	w.t.Helper()
	out, err := w.Host("cloud").Command(w.t.Context(), "curl", "-sS", "http://"+at+"/metrics").Output()
	if err != nil {
		w.t.Errorf("%s: %v", at, err)
	}
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			if n, err = strconv.ParseFloat(strings.TrimSpace(text), 64); err != nil {
				w.t.Errorf("%s: %v", line, err)
			}
		}
	}
	return n
}

// visitUntil visits again and again until the test ends, and counts what succeeds.
func (w *twins) visitUntil(ctx context.Context, r registered, done *atomic.Int64) {
	for ctx.Err() == nil {
		if ok, _ := w.visit(r, -1); ok {
			done.Add(1)
		}
	}
}

// register gets a pseudonym of the other site.
func (w *twins) register() error {
	return w.tried("get", shop, "--zone", zone, "--root", w.cloud.Root())
}

// registerBy gets one by one gateway.
func (w *twins) registerBy(twin int) error {
	return w.tried("get", shop, "--zone", zone, "--root", w.cloud.Root(), "--connect", netip.AddrPortFrom(gateways[twin], 443).String())
}

// unregister revokes it.
func (w *twins) unregister() error { return w.tried("revoke", shop) }

func (w *twins) tried(args ...string) error {
	_, talk, err := w.Try("client", "", append([]string{"pseudonym"}, args...)...)
	if err != nil {
		err = fmt.Errorf("%v: %w: %s", args, err, talk)
	}
	return err
}

// Two processes of each part share a database. Each learns what the others do: both gateways and both sidecars apply a revocation.
func TestTwoOfEachPart(t *testing.T) {
	w := newTwins(t)
	counters := []struct{ part, name string }{
		{storePart, `heddle_pseudonym_store{event="registered"}`}, {storePart, `heddle_pseudonym_store{event="revoked"}`},
		{gatewayPart, "heddle_pseudonym_gateway_relayed"}, {gatewayPart, "heddle_pseudonym_gateway_bytes_down"}, {dnsPart, "heddle_pseudonym_dns_answers"},
	}
	sum := func(part, name string) float64 { return w.number(part, 0, name) + w.number(part, 1, name) }
	before := make([]float64, len(counters))
	for i, c := range counters {
		before[i] = sum(c.part, c.name)
	}
	r := w.get(news)
	for twin := range 2 {
		if ok, _ := w.visit(r, twin); !ok {
			t.Errorf("gateway %d does not lead to the site\n%s", twin, w.parts[gatewayPart][twin].Log())
		}
		if ok, _ := w.near(r, twin); !ok {
			t.Errorf("sidecar %d does not serve\n%s", twin, w.parts[sidecarPart][twin].Log())
		}
	}
	other := w.get(shop)
	for twin := range 2 { // clients come by either
		polltest.Until(t, func() error {
			err := w.link(r, other)
			if err == nil && w.number(storePart, twin, "heddle_pseudonym_linker_led") == 0 {
				err = fmt.Errorf("linker %d led nobody", twin)
			}
			return err
		})
	}
	w.Run("client", "pseudonym", "revoke", news)
	for twin := range 2 {
		polltest.Await(t, fmt.Sprint("the revocation at gateway ", twin), func() bool { _, refused := w.visit(r, twin); return refused })
		polltest.Await(t, fmt.Sprint("the revocation at sidecar ", twin), func() bool { _, refused := w.near(r, twin); return refused })
	}
	for i, c := range counters {
		polltest.Await(t, c.name+" grows", func() bool { return sum(c.part, c.name) > before[i] })
	}
}

// One process of each part is killed while a user registers and visits. The others go on, and a revocation holds at them.
func TestOneOfEachPartIsKilled(t *testing.T) {
	w := newTwins(t)
	r := w.get(news)
	var visits atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() { defer close(ended); w.visitUntil(ctx, r, &visits) }()
	defer func() { cancel(); <-ended }()
	more := func(what string) {
		t.Helper()
		before := visits.Load()
		polltest.Await(t, "visits "+what, func() bool { return visits.Load() > before+1 })
	}
	more("before anything is killed")
	for _, part := range []string{storePart, gatewayPart, dnsPart, sidecarPart} {
		underWay := make(chan error, 1)
		go func() { underWay <- w.register() }()
		w.parts[part][0].Kill()
		if err := <-underWay; err != nil {
			t.Logf("%s: what was under way fails: %v", part, err)
			polltest.Until(t, w.register)
		}
		more("after one " + part + " was killed")
		polltest.Until(t, w.unregister)
	}
	cancel()
	<-ended
	w.Run("client", "pseudonym", "revoke", news)
	polltest.Await(t, "the revocation at the other gateway", func() bool { _, refused := w.visit(r, 1); return refused })
	polltest.Await(t, "the revocation at the other sidecar", func() bool { _, refused := w.near(r, 1); return refused })
	again := w.get(news)
	if again.Name == r.Name {
		t.Error("the same pseudonym again")
	}
	for range 8 { // each time the gateway may try the sidecar first that is gone
		if ok, _ := w.visit(again, -1); !ok {
			t.Error("a visit by the other processes fails")
		}
	}
	other := w.get(shop)
	polltest.Until(t, func() error { return w.link(again, other) })
	for range 8 { // each time the gateway may try the linker first that is gone
		if err := w.link(again, other); err != nil {
			t.Error(err)
		}
	}
}
