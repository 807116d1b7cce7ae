package zone

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/miekg/dns"
	_ "modernc.org/sqlite"

	"heddle/internal/polltest"
	"heddle/internal/tcptest"
)

// nameserver runs an unmodified nameserver with the text of the zone cloud.example, which the key of a test may update, and with fixed.example, which
// nobody may. It skips a test without the program.
type nameserver func(t *testing.T, zone string) (at string)

// nameservers are those that take updates.
var nameservers = map[string]nameserver{"BIND": bind, "Knot": knot, "PowerDNS": powerDNS}

// otherZone is what another nameserver has of its own.
const otherZone = "$ORIGIN cloud.example.\n$TTL 60\n@ SOA ns1.example.net. hostmaster.example.net. 1 3600 600 86400 60\n@ NS ns1.example.net.\nold A 198.51.100.7\n"

const fixedZone = "$ORIGIN fixed.example.\n$TTL 60\n@ SOA ns1.example.net. hostmaster.example.net. 1 3600 600 86400 60\n@ NS ns1.example.net.\n"

// tool finds a program, or skips the test. Debian keeps servers out of the PATH of most users.
func tool(t *testing.T, name, install string) string {
	t.Helper()
	for _, at := range []string{name, "/usr/sbin/" + name} {
		if file, err := exec.LookPath(at); err == nil {
			return file
		}
	}
	t.Skipf("typed skip: no %s: apt-get install %s", name, install)
	return ""
}

// files writes files of these texts to a directory, which it returns.
func files(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run starts a server, waits until it answers, and ends it with the test.
func run(t *testing.T, at, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() { // the context ends it
		<-ended
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s", text)
		}
	})
	polltest.Await(t, program+" answers", func() bool {
		select {
		case <-ended:
			t.Fatal(program + " has ended")
		default:
		}
		m, err := dns.Exchange(new(dns.Msg).SetQuestion("cloud.example.", dns.TypeSOA), at)
		return err == nil && len(m.Answer) == 1
	})
}

func bind(t *testing.T, zone string) (at string) {
	t.Helper()
	named, free := tool(t, "named", "bind9"), tcptest.Nobody(t)
	dir := files(t, map[string]string{"zone": zone, "fixed": fixedZone})
	conf := files(t, map[string]string{"named.conf": fmt.Sprintf(bindKey, secret) + fmt.Sprintf(`options { directory %q; listen-on port %d { 127.0.0.1; }; listen-on-v6 { none; };
		pid-file none; session-keyfile none; recursion no; dnssec-validation no; notify no; }; controls {};
		zone "cloud.example" { type primary; file "zone"; allow-update { key "cloud"; }; };
		zone "fixed.example" { type primary; file "fixed"; };`, dir, free.Port())})
	run(t, free.String(), named, "-f", "-g", "-n", "1", "-c", filepath.Join(conf, "named.conf"))
	return free.String()
}

func knot(t *testing.T, zone string) (at string) {
	t.Helper()
	knotd, free := tool(t, "knotd", "knot"), tcptest.Nobody(t)
	dir := files(t, map[string]string{"zone": zone, "fixed": fixedZone})
	conf := files(t, map[string]string{"knot.conf": fmt.Sprintf(`server:
    rundir: %[1]q
    listen: 127.0.0.1@%[2]d
    background-workers: 1
log:
  - target: stderr
    any: info
database:
    storage: %[1]q
    journal-db-max-size: 16M
key:
  - id: cloud
    algorithm: hmac-sha256
    secret: %[3]s
acl:
  - id: updates
    key: cloud
    action: update
zone:
  - domain: cloud.example
    storage: %[1]q
    file: zone
    acl: updates
  - domain: fixed.example
    storage: %[1]q
    file: fixed
`, dir, free.Port(), secret)})
	run(t, free.String(), knotd, "-c", filepath.Join(conf, "knot.conf"))
	return free.String()
}

const powerDNSConf = `setuid=
daemon=no
guardian=no
write-pid=no
socket-dir=%[1]s
local-address=127.0.0.1
local-port=%[2]d
security-poll-suffix=
cache-ttl=0
query-cache-ttl=0
negquery-cache-ttl=0
zone-cache-refresh-interval=0
`

// powerDNS has its zones in a database of SQLite, into which its own program loads them.
func powerDNS(t *testing.T, zone string) (at string) {
	t.Helper()
	server, util, free := tool(t, "pdns_server", "pdns-server"), tool(t, "pdnsutil", "pdns-server"), tcptest.Nobody(t)
	schema, err := os.ReadFile("/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql")
	if err != nil {
		t.Skip("typed skip: apt-get install pdns-backend-sqlite3:", err)
	}
	dir := files(t, map[string]string{"zone": zone, "fixed": fixedZone})
	db, err := sql.Open("sqlite", filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec(string(schema))
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	conf := files(t, map[string]string{"pdns.conf": fmt.Sprintf(powerDNSConf+"launch=gsqlite3\ngsqlite3-database=%[1]s/db\ndnsupdate=yes\nallow-dnsupdate-from=127.0.0.1/8\n", dir, free.Port())})
	for _, args := range [][]string{{"load-zone", "cloud.example", filepath.Join(dir, "zone")}, {"load-zone", "fixed.example", filepath.Join(dir, "fixed")},
		{"import-tsig-key", "cloud", "hmac-sha256", secret}, {"set-meta", "cloud.example", "TSIG-ALLOW-DNSUPDATE", "cloud"},
		{"set-meta", "fixed.example", "TSIG-ALLOW-DNSUPDATE", "nobody"}} {
		cmd := exec.CommandContext(t.Context(), util, append([]string{"--config-dir=" + conf}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("[Error]")) {
			t.Fatalf("pdnsutil %q: %v\n%s", args, err, out)
		}
	}
	run(t, free.String(), server, "--config-dir="+conf)
	return free.String()
}

// powerDNSWithFiles reads the zones as BIND does, and takes no updates.
func powerDNSWithFiles(t *testing.T, zone string) (at string) {
	t.Helper()
	server, free := tool(t, "pdns_server", "pdns-server"), tcptest.Nobody(t)
	if _, err := os.Stat("/usr/share/pdns-backend-bind"); err != nil {
		t.Skip("typed skip: apt-get install pdns-backend-bind:", err)
	}
	dir := files(t, map[string]string{"zone": zone, "fixed": fixedZone})
	conf := files(t, map[string]string{"named.conf": fmt.Sprintf("options { directory %q; };\nzone \"cloud.example\" { type master; file \"zone\"; };\nzone \"fixed.example\" { type master; file \"fixed\"; };\n", dir)})
	if err := os.WriteFile(filepath.Join(conf, "pdns.conf"), fmt.Appendf(nil, powerDNSConf+"launch=bind\nbind-config=%[3]s/named.conf\n", dir, free.Port(), conf), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, free.String(), server, "--config-dir="+conf)
	return free.String()
}
