package pseudonym

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"heddle/internal/pgtest"
	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/peer"
)

// shares lets switches of a kind share their connections by a database, which it returns.
func (w *world) shares(kind string) *sql.DB {
	w.t.Helper()
	at := pgtest.Start(w.t).Database(w.t)
	w.set(`# switch-shares = false`, `switch-shares = true`, `database = "pseudonyms.db"`, fmt.Sprintf("database = %q", at),
		`# gateway-switch = "auto"`, fmt.Sprintf("gateway-switch = %q", kind))
	db, err := sql.Open("pgx", at)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { db.Close() })
	return db
}

// nft changes the rules of a host.
func (w *world) nft(host, rules string) {
	w.t.Helper()
	if out, err := w.Host(host).Command(w.t.Context(), "nft", rules).CombinedOutput(); err != nil {
		w.t.Fatalf("%s: nft %s: %v\n%s", host, rules, err, out)
	}
}

// run runs a program on the host cloud.
func (w *world) run(command string) error {
	args := strings.Fields(command)
	if out, err := w.Host("cloud").Command(w.t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, out)
	}
	return nil
}

// A switch whose machine lost all that it led, as by a new start, is filled again: a connection that had been handed over goes on.
func TestSwitchIsFilledAgain(t *testing.T) {
	for _, k := range []struct {
		spareKind
		empty func(*world) error
	}{
		{spareKind{name: "bpf", leads: programsLead}, func(w *world) error {
			err := os.RemoveAll(filepath.Join(w.Host("cloud").Dir(), "bpf", "heddle"))
			for _, device := range []string{"isp", "news"} {
				err = errors.Join(err, w.run("tc filter del dev "+device+" ingress"), w.run("tc filter del dev "+device+" egress"))
			}
			return errors.Join(err, w.run("nft delete table inet heddle_untracked"))
		}},
		{spareKind{name: "nft", leads: rulesLead}, func(w *world) error { return w.run("nft delete table inet heddle_gateway") }},
	} {
		t.Run(k.name, func(t *testing.T) {
			var db *sql.DB
			var serving *peer.Process
			serve := func(w *world) {
				var err error
				if serving, err = w.cloud.Serve(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			w, r, _ := movingWorld(t, lab.OpenCloud("cloud", "news"), func(w *world) {
				db = w.shares(k.name)
				serve(w)
			})
			page := w.open(r, "/large.bin")
			w.moved(1)
			var noted int
			polltest.Until(t, func() error { return db.QueryRowContext(t.Context(), "SELECT 1 FROM moves").Scan(&noted) })
			// While the machine starts, nobody hears from it.
			w.nft("isp", "add table netdev away; add chain netdev away in { type filter hook ingress device cloud priority -500; policy drop; }")
			serving.Kill()
			if err := k.empty(w); err != nil {
				t.Fatal(err)
			}
			if k.leads(t.Context(), w.Host("cloud")) == nil {
				t.Error("the switch was not emptied")
			}
			serve(w)
			polltest.Until(t, func() error { return k.leads(t.Context(), w.Host("cloud")) })
			w.nft("isp", "delete table netdev away")
			if n, err := io.Copy(io.Discard, page); err != nil || n != 5<<20 {
				t.Errorf("%d bytes come, %v", n, err)
			}
		})
	}
}

// Two gateways of one database hand connections over by one switch. One is killed: what it handed over goes on, and the next connection goes by the other.
func TestOneOfTwoGatewaysIsKilled(t *testing.T) {
	const others = "127.0.0.1:9481"
	spec := lab.OpenCloud("cloud", "news")
	spec.Links[1].B.Addrs = append(spec.Links[1].B.Addrs, netip.PrefixFrom(gateways[1], 24))
	var running [2]*peer.Process
	w, r, _ := movingWorld(t, spec, func(w *world) {
		w.set(`"`+gateway.String()+`"`, fmt.Sprintf("%q, %q", gateways[0], gateways[1]), `"pseudonyms.db"`, fmt.Sprintf("%q", pgtest.Start(t).Database(t)),
			`# switch = "unix:/run/heddle-switch/socket"`, fmt.Sprintf("switch = %q", "unix:"+filepath.Join(t.TempDir(), "switch")))
		text, err := os.ReadFile(w.cloud.File())
		if err != nil {
			t.Fatal(err)
		}
		serve := func(parts string, replaces ...string) *peer.Process {
			file := filepath.Join(w.dir, fmt.Sprintf("%s-%d.toml", parts, len(replaces)))
			if err := os.WriteFile(file, []byte(strings.NewReplacer(replaces...).Replace(string(text))), 0o600); err != nil {
				t.Fatal(err)
			}
			return w.Start("cloud", "serving "+zone, "pseudonym", "serve", file, "--only", parts)
		}
		serve("switch", gatewayMetrics, "")
		serve("store,linker,dns", gatewayMetrics, "")
		running[0] = serve("gateway", `":443"`, fmt.Sprintf(`"%v:443"`, gateways[0]))
		running[1] = serve("gateway", `":443"`, fmt.Sprintf(`"%v:443"`, gateways[1]), gatewayMetrics, others)
	})
	page := w.open(r, "/large.bin")
	w.moved(1)
	running[0].Kill()
	if page, status, err := w.curl(r, r.URL); err != nil || page != text(news) {
		t.Errorf("the next visit: %d, %v", status, err)
	}
	polltest.Await(t, "the other gateway hands it over", func() bool { return number(w, others, "heddle_pseudonym_gateway_moved") == 1 })
	if n, err := io.Copy(io.Discard, page); err != nil || n != 5<<20 {
		t.Errorf("%d bytes come, %v", n, err)
	}
}
