package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"

	"heddle/internal/sqlite"
	"heddle/lab"
	"heddle/lab/peer"
)

// paperPseudonyms are as many as in figure 4(d).
const paperPseudonyms = 60_000

// gatewayPseudonyms is figure 4(d): fetches by one pseudonym while the cloud has many of the same site, and the memory of what serves them.
func gatewayPseudonyms(quick bool) *topology {
	m := &manyPseudonyms{}
	t := &topology{name: "pseudonyms", world: gatewayWorld()}
	counts := []int{1, 1000, paperPseudonyms, 1_000_000}
	if quick {
		counts = []int{1, paperPseudonyms}
	}
	for _, n := range counts {
		t.cases = append(t.cases, variant{strconv.Itoa(n), func(ctx context.Context, _ *stage, _ int) ([]figure, error) { return m.measure(ctx, n, quick) }})
	}
	t.serve = func(ctx context.Context, s *stage) error {
		m.pseudonymServers = pseudonymServers{stage: s, ways: map[string]way{}}
		return m.prepare(ctx)
	}
	return t
}

// manyPseudonyms is a cloud with one site, and with a database for each number of pseudonyms.
type manyPseudonyms struct {
	pseudonymServers
	sidecar peer.Sidecar
	way     way
	named   string          // the file of the database that cloud.toml names
	filled  map[string]bool // files
}

// prepare makes the cloud, the site and one pseudonym, and stops the cloud.
func (m *manyPseudonyms) prepare(ctx context.Context) error {
	if err := m.startSite(ctx, nil); err != nil {
		return err
	}
	devices, err := peer.NewOverlay(m.heddle, m.work, m.Instance)
	if err != nil {
		return err
	}
	if m.cloud, err = peer.NewCloud(ctx, devices, filepath.Join(m.work, "cloud"), lab.CloudGateway); err != nil {
		return err
	}
	serving, err := m.cloud.Serve(ctx)
	if err != nil {
		return err
	}
	defer serving.Stop()
	m.sidecar = m.cloud.At("site", pseudonymName, pseudonymSite)
	if err := m.cloud.Enrol(ctx, m.sidecar); err != nil {
		return err
	}
	own, err := m.cloud.Get(ctx, "client", pseudonymName)
	if err != nil {
		return err
	}
	m.named, m.filled = onePseudonym, map[string]bool{}
	m.way, err = m.visit(own)
	m.way.dial = m.to(netip.AddrPortFrom(lab.CloudGateway, 443))
	return err
}

// onePseudonym is the file of the database of a new cloud.
const onePseudonym = "pseudonyms.db"

// measure starts the cloud with so many pseudonyms, fetches by one, and stops the cloud.
func (m *manyPseudonyms) measure(ctx context.Context, n int, quick bool) ([]figure, error) {
	if err := m.use(ctx, n); err != nil {
		return nil, err
	}
	serving, err := m.cloud.Serve(ctx)
	if err != nil {
		return nil, err
	}
	defer serving.Stop()
	sidecar, err := m.cloud.Sidecar(ctx, m.sidecar)
	if err != nil {
		return nil, err
	}
	defer sidecar.Stop()
	err = serving.Await(ctx, func() error { // the gateway learns of the site a little later
		_, err := m.way.fetch(ctx, smallest)
		return err
	})
	if err != nil {
		return nil, err
	}
	figures, err := fetchLatencies(ctx, m.way, quick)
	for name, p := range map[string]*peer.Process{"cloud": serving, "sidecar": sidecar} {
		mb, other := resident(p.PID())
		figures, err = append(figures, figure{name, "memory", "MB", mb}), errors.Join(err, other)
	}
	return figures, err
}

// use lets the cloud have a database with n pseudonyms, which it makes at first: one that works, and others with random bytes of the same lengths.
func (m *manyPseudonyms) use(ctx context.Context, n int) error {
	file := fmt.Sprintf("pseudonyms-%d.db", n)
	if !m.filled[file] {
		if err := m.fill(ctx, filepath.Join(m.cloud.Dir, file), n); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		m.filled[file] = true
	}
	err := m.cloud.Replace(strconv.Quote(m.named), strconv.Quote(file))
	m.named = file
	return err
}

func (m *manyPseudonyms) fill(ctx context.Context, file string, n int) error {
	one, err := sqlite.OpenShared(filepath.Join(m.cloud.Dir, onePseudonym))
	if err != nil {
		return err
	}
	_, err = one.ExecContext(ctx, `VACUUM INTO $1`, file)
	if err = errors.Join(err, one.Close()); err != nil || n < 2 {
		return err
	}
	many, err := sqlite.OpenShared(file)
	if err != nil {
		return err
	}
	done, err := many.ExecContext(ctx, `INSERT INTO pseudonyms (label, site, owner, capability, client, certificate, secret, created, expires)
		WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < $1), one AS (SELECT * FROM pseudonyms WHERE site = $2)
		SELECT lower(hex(randomblob(13))), site, randomblob(16), randomblob(16), randomblob(32), certificate, randomblob(length(secret)), created, expires FROM n, one`,
		n, pseudonymName)
	if err == nil {
		if added, _ := done.RowsAffected(); added != int64(n-1) {
			err = fmt.Errorf("%d pseudonyms were added, not %d", added, n-1)
		}
	}
	return errors.Join(err, many.Close())
}
