package cloud

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"heddle/internal/pgtest"
	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/pseudonym"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/database"
	"heddle/pseudonym/mutual"
)

// The processes of a cloud with a million pseudonyms: how long the store takes to start, how many questions the nameserver answers by
// its socket, and the memory of each after more visits to one site than its sidecar keeps pseudonyms. The client shares the processors.
//
//	go test -run xxx -bench Pseudonyms/SQLite/1000000 -benchtime 1x -timeout 1h ./pseudonym/cloud
func BenchmarkPseudonyms(b *testing.B) {
	for _, n := range []int{20_000, 1_000_000} {
		b.Run(fmt.Sprint("SQLite/", n), func(b *testing.B) { benchCloud(b, n, "") })
		b.Run(fmt.Sprint("PostgreSQL/", n), func(b *testing.B) { benchCloud(b, n, pgtest.Start(b).Database(b)) })
	}
}

const (
	benchSite    = "news.example"
	visited      = mutual.DefaultSize + 500
	questionsFor = 3 * time.Second
)

func benchCloud(b *testing.B, n int, url string) {
	heddle, err := labtest.Binary()
	if err != nil {
		b.Fatal(err)
	}
	on := peer.Here(heddle, b.TempDir())
	c, err := peer.NewLoopbackCloud(b.Context(), on, filepath.Join(b.TempDir(), "cloud"), netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(c.Dir, "pseudonyms.db")
	if url != "" {
		file = url
		if err := c.Replace(`"pseudonyms.db"`, fmt.Sprintf("%q", url)); err != nil {
			b.Fatal(err)
		}
	}
	listen, err := peer.FreePorts(b.Context(), 1)
	if err != nil {
		b.Fatal(err)
	}
	sidecar := peer.Sidecar{Host: "site", Site: benchSite, Listen: listen[0], Store: c.Tenants, To: "http://127.0.0.1:9"}
	if err := c.Enrol(b.Context(), sidecar); err != nil {
		b.Fatal(err)
	}
	labels := fill(b, c.Dir, file, n)
	for b.Loop() {
		clean(b, file)
		measureCloud(b, c, sidecar, labels)
	}
}

// fill makes a database with n pseudonyms of a site, and returns the labels of those that can be visited.
func fill(b *testing.B, dir, file string, n int) (labels []pseudonym.Label) {
	ctx, now := b.Context(), time.Now()
	seal, err := readSeal(dir)
	if err != nil {
		b.Fatal(err)
	}
	db, err := database.Open(ctx, file, seal, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	issuer, _, err := readIssuer(dir, testZone, now)
	if err != nil {
		b.Fatal(err)
	}
	key := catest.NewKey(b)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		b.Fatal(err)
	}
	p := database.Pseudonym{Site: benchSite, Key: private, Created: now}
	for range min(n, visited) {
		p.Label, p.Owner, p.Capability = pseudonym.NewLabel(), pseudonym.NewOwner(), pseudonym.NewCapability()
		cert, err := issuer.Server(testZone.Name(p.Label), key.Public(), now, now.Add(24*time.Hour))
		if err != nil {
			b.Fatal(err)
		}
		p.Certificate, p.Expires = cert.Raw, cert.NotAfter
		if err := db.Add(ctx, p); err != nil {
			b.Fatal(err)
		}
		labels = append(labels, p.Label)
	}
	// The others have random bytes of the same lengths.
	const columns = `INSERT INTO pseudonyms (label, site, owner, capability, client, certificate, secret, created, expires) `
	driver, statement := "sqlite", columns+`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		SELECT lower(hex(randomblob(13))), $2, randomblob(16), randomblob(16), randomblob(32), $3, randomblob(length($4)), $5, $6 FROM n`
	if strings.HasPrefix(file, "postgres://") {
		const random = `decode(md5(random()::text), 'hex')`
		driver, statement = "pgx", columns+`SELECT left(md5(random()::text), 26), $2, `+random+`, `+random+`, `+random+`, $3::bytea, $4::bytea, $5::bigint, $6::bigint FROM generate_series(1, $1::int)`
	}
	raw, err := sql.Open(driver, file)
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.ExecContext(ctx, statement, n-len(labels), benchSite, p.Certificate, append(private, make([]byte, 28)...), now.Unix(), p.Expires.Unix()); err != nil {
		b.Fatal(err)
	}
	return labels
}

// clean does what the store does every hour, when nothing has ended.
func clean(b *testing.B, file string) {
	db, err := database.Open(b.Context(), file, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	began := time.Now()
	if n, err := db.Forget(b.Context(), time.Now().Add(-keepEnded), time.Now()); err != nil || n > 0 {
		b.Fatal(n, err)
	}
	b.ReportMetric(time.Since(began).Seconds(), "s-clean")
}

func measureCloud(b *testing.B, c *peer.LoopbackCloud, sidecar peer.Sidecar, labels []pseudonym.Label) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	run := map[string]*peer.Process{}
	defer func() {
		for _, p := range run {
			p.Stop()
		}
	}()
	start := func(name string, begin func() (*peer.Process, error)) time.Duration {
		began := time.Now()
		p, err := begin()
		if err != nil {
			b.Fatal(err)
		}
		run[name] = p
		return time.Since(began)
	}
	took := start("store", func() (*peer.Process, error) { return c.Serve(ctx, "--only", "store") })
	b.ReportMetric(took.Seconds(), "s-start")
	for _, part := range []string{"gateway", "dns"} {
		start(part, func() (*peer.Process, error) { return c.Serve(ctx, "--only", part) })
	}
	start("sidecar", func() (*peer.Process, error) { return c.Sidecar(ctx, sidecar) })
	before := processor(b, run["dns"])
	answers := ask(b, c.Nameserver, labels)
	b.ReportMetric(float64(answers)/questionsFor.Seconds(), "answers/s")
	b.ReportMetric((processor(b, run["dns"])-before).Seconds()*1e6/float64(answers), "µs-processor/answer")
	visit(b, c.Gateway, labels)
	for name, p := range run {
		b.ReportMetric(peak(b, p)/(1<<20), "MiB-"+name)
	}
}

// ask asks the nameserver for addresses for [questionsFor], with some questions under way at a time, and counts the answers.
func ask(b *testing.B, at netip.AddrPort, labels []pseudonym.Label) int64 {
	const askers, under = 4, 32
	var count atomic.Int64
	var all errgroup.Group
	end := time.Now().Add(questionsFor)
	for range askers {
		all.Go(func() error {
			c, err := net.Dial("udp", at.String())
			if err != nil {
				return err
			}
			defer c.Close()
			answer := make([]byte, 4096)
			for time.Now().Before(end) {
				for range under {
					q, err := new(dns.Msg).SetQuestion(testZone.Name(labels[rand.IntN(len(labels))])+".", dns.TypeA).Pack()
					if err != nil {
						return err
					}
					if _, err := c.Write(q); err != nil {
						return err
					}
				}
				_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // what is lost is not waited for
				for range under {
					n, err := c.Read(answer)
					if err != nil {
						break
					}
					if n < 12 || answer[3]&15 != dns.RcodeSuccess || answer[7] == 0 {
						return fmt.Errorf("the answer is % x", answer[:n])
					}
					count.Add(1)
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil || count.Load() == 0 {
		b.Fatalf("%d answers, %v", count.Load(), err)
	}
	return count.Load()
}

// visit connects to each pseudonym by the gateway, so that the sidecar loads it. It has no client's certificate, which the sidecar
// refuses after that.
func visit(b *testing.B, gateway netip.AddrPort, labels []pseudonym.Label) {
	var all errgroup.Group
	all.SetLimit(8)
	for _, l := range labels {
		all.Go(func() error {
			c, err := tls.Dial("tcp", gateway.String(), &tls.Config{ServerName: testZone.Name(l), InsecureSkipVerify: true})
			if err != nil {
				return fmt.Errorf("%s: %w", l, err)
			}
			return c.Close()
		})
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
}

// peak is the largest memory of a process so far, in bytes.
func peak(b *testing.B, p *peer.Process) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "VmHWM:")
	var kib float64
	if _, err := fmt.Sscan(rest, &kib); !ok || err != nil {
		b.Fatal(ok, err)
	}
	return kib * 1024
}

// processor is the time of processors that a process took so far.
func processor(b *testing.B, p *peer.Process) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // from the third on: proc(5)
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		b.Fatal(err)
	}
	const tick = 10 * time.Millisecond // Linux reports in hundredths of a second on all machines
	return time.Duration(user+system) * tick
}
