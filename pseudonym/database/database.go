// Package database keeps the tenants and pseudonyms of a cloud, in SQLite for one machine or in PostgreSQL for several.
package database

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"heddle/internal/connlimit"
	"heddle/internal/errhint"
	"heddle/internal/sqlite"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

// ErrExists says that something of that name is there already.
var ErrExists = errors.New("there is one already")

// Tenant is a site that the cloud hosts.
type Tenant struct {
	Site      string    `json:"site"`
	Addresses []string  `json:"address"` // of its sidecars, HOST:PORT
	Client    ca.KeyID  `json:"-"`       // the key by which the sidecars ask the store
	Created   time.Time `json:"created"`
}

// Pseudonym is a name by which one client reaches one tenant.
type Pseudonym struct {
	Label       pseudonym.Label
	Site        string
	Owner       pseudonym.Owner
	Capability  pseudonym.Capability
	Client      ca.KeyID
	Certificate []byte // of the server, in DER
	Key         []byte // of the server, PKCS #8 in DER; the database has it sealed, and without its seal nobody reads it
	Created     time.Time
	Expires     time.Time
	Revoked     time.Time // zero if it is not
}

// Valid reports whether a pseudonym may be used.
func (p *Pseudonym) Valid(now time.Time) bool { return p.Revoked.IsZero() && now.Before(p.Expires) }

// DB is safe for concurrent use.
type DB struct {
	sql  *sql.DB
	pool *pgx.ConnConfig // nil for SQLite
	seal *Seal
	log  *slog.Logger

	lines connlimit.Lines // of the log

	mu       sync.Mutex
	watchers map[chan Change]bool
	stop     context.CancelFunc
	stopped  sync.WaitGroup
}

//go:embed migrations/*.sql
var migrations embed.FS

// postgres reports whether a database is one of PostgreSQL, and not the file of one of SQLite.
func postgres(database string) bool {
	return strings.HasPrefix(database, "postgres://") || strings.HasPrefix(database, "postgresql://")
}

// Open opens a database, a URL of PostgreSQL or the file of SQLite, and brings its tables up to date. Without a seal, keys of servers
// are neither read nor added.
func Open(ctx context.Context, database string, seal *Seal, log *slog.Logger) (*DB, error) {
	d := &DB{seal: seal, log: log, watchers: map[chan Change]bool{}}
	dialect, err := goose.DialectSQLite3, error(nil)
	if postgres(database) {
		dialect = goose.DialectPostgres
		if d.pool, err = pgx.ParseConfig(database); err == nil {
			d.sql = stdlib.OpenDB(*d.pool)
			err = d.sql.PingContext(ctx)
		}
	} else {
		d.sql, err = sqlite.OpenShared(database)
	}
	if err != nil {
		return nil, &errhint.Error{What: "the database", Why: "it cannot be opened", Hint: "check database = in the file", Err: redacted(err)}
	}
	if err := d.migrate(ctx, dialect); err != nil {
		return nil, errors.Join(explained(fmt.Errorf("the database's tables: %w", err)), d.sql.Close())
	}
	listening, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.stopped.Go(func() { d.listen(listening) })
	return d, nil
}

// redacted is an error of pgx without the URL, which has the password.
func redacted(err error) error {
	if parse := (*pgconn.ParseConfigError)(nil); errors.As(err, &parse) {
		return errors.New("its URL is no URL of PostgreSQL")
	}
	return err
}

// explained says what to do about a damaged file.
func explained(err error) error {
	if sqlite.Damaged(err) {
		return damaged(err)
	}
	return err
}

func damaged(err error) error {
	return &errhint.Error{What: "the database", Why: "its file is damaged", Hint: "stop serve, keep the file, and put a backup in its place; sqlite3 FILE .recover may read the rest", Err: err}
}

// Check reads all of a SQLite database, and fails if a part of its file is damaged. PostgreSQL has programs of its own for that.
func (d *DB) Check(ctx context.Context) error {
	if d.pool != nil {
		return nil
	}
	var found string
	if err := d.sql.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&found); err != nil {
		return explained(err)
	}
	if found != "ok" {
		return damaged(errors.New(found))
	}
	return nil
}

func (d *DB) migrate(ctx context.Context, dialect goose.Dialect) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(dialect, d.sql, files)
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// Close ends all watches.
func (d *DB) Close() error {
	d.stop()
	d.stopped.Wait()
	d.mu.Lock()
	for w := range d.watchers {
		close(w)
	}
	d.watchers = nil
	d.mu.Unlock()
	return d.sql.Close()
}

// AddTenant fails with [ErrExists] for a site that is there.
func (d *DB) AddTenant(ctx context.Context, t Tenant) error {
	return d.change(ctx, pseudonym.Sites, ErrExists, `INSERT INTO tenants (site, address, client, created) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
		t.Site, strings.Join(t.Addresses, addressBreak), t.Client[:], t.Created.Unix())
}

// PutTenant adds a site, or changes where its sidecars are.
func (d *DB) PutTenant(ctx context.Context, t Tenant) error {
	err := d.change(ctx, pseudonym.Sites, errSame, `INSERT INTO tenants (site, address, client, created) VALUES ($1, $2, $3, $4)
		ON CONFLICT (site) DO UPDATE SET address = excluded.address WHERE tenants.address <> excluded.address`,
		t.Site, strings.Join(t.Addresses, addressBreak), t.Client[:], t.Created.Unix())
	if errors.Is(err, errSame) {
		return nil
	}
	return err
}

var errSame = errors.New("nothing changed")

// RemoveTenant removes a site with its pseudonyms. It fails with [pseudonym.ErrNone].
func (d *DB) RemoveTenant(ctx context.Context, site string) error {
	return d.transact(ctx, func(tx *sql.Tx) ([]pseudonym.Label, error) {
		labels, err := labels(tx.QueryContext(ctx, `DELETE FROM pseudonyms WHERE site = $1 RETURNING label`, site))
		if err != nil {
			return nil, err
		}
		r, err := tx.ExecContext(ctx, `DELETE FROM tenants WHERE site = $1`, site)
		return append(labels, pseudonym.Sites), affected(r, err, pseudonym.ErrNone)
	})
}

// affected returns none if a statement changed nothing.
func affected(r sql.Result, err, none error) error {
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return none
}

// labels reads the labels that a query selects.
func labels(rows *sql.Rows, err error) (all []pseudonym.Label, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var l pseudonym.Label
		if err := rows.Scan(&l); err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, rows.Err()
}

// addressBreak is between the addresses of a tenant in the database.
const addressBreak = ","

const tenantColumns = `site, address, tenants.client, tenants.created`

// scanTenant reads tenantColumns, and more columns behind them.
func scanTenant(row interface{ Scan(...any) error }, more ...any) (t Tenant, err error) {
	var created int64
	var client []byte
	var addresses string
	err = row.Scan(append([]any{&t.Site, &addresses, &client, &created}, more...)...)
	if errors.Is(err, sql.ErrNoRows) {
		err = pseudonym.ErrNone
	}
	t.Addresses = strings.Split(addresses, addressBreak)
	copy(t.Client[:], client)
	t.Created = time.Unix(created, 0)
	return t, err
}

// Tenant fails with [pseudonym.ErrNone].
func (d *DB) Tenant(ctx context.Context, site string) (Tenant, error) {
	return scanTenant(d.sql.QueryRowContext(ctx, `SELECT `+tenantColumns+` FROM tenants WHERE site = $1`, site))
}

// SiteOf returns the site whose sidecar has a key. It fails with [pseudonym.ErrNone].
func (d *DB) SiteOf(ctx context.Context, client ca.KeyID) (site string, err error) {
	err = d.sql.QueryRowContext(ctx, `SELECT site FROM tenants WHERE client = $1`, client[:]).Scan(&site)
	if errors.Is(err, sql.ErrNoRows) {
		err = pseudonym.ErrNone
	}
	return site, err
}

// Tenants returns all sites in alphabetical order.
func (d *DB) Tenants(ctx context.Context) (all []Tenant, err error) {
	rows, err := d.sql.QueryContext(ctx, `SELECT `+tenantColumns+` FROM tenants ORDER BY site`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		t, err := scanTenant(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, rows.Err()
}

// Add adds a pseudonym. It fails with [ErrExists] if the label is taken. Watchers do not learn of it, as nobody keeps what is not there.
func (d *DB) Add(ctx context.Context, p Pseudonym) error {
	if d.seal == nil {
		return errors.New("the database is open without the seal of its keys")
	}
	r, err := d.sql.ExecContext(ctx, `INSERT INTO pseudonyms (label, site, owner, capability, client, certificate, secret, created, expires)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING`,
		p.Label, p.Site, p.Owner[:], p.Capability[:], p.Client[:], p.Certificate, d.seal.close(p.Key, string(p.Label)), p.Created.Unix(), p.Expires.Unix())
	return affected(r, err, ErrExists)
}

const pseudonymColumns = `label, site, owner, capability, client, certificate, secret, created, expires, revoked`

func (d *DB) scan(row interface{ Scan(...any) error }) (p Pseudonym, err error) {
	var owner, capability, client, secret []byte
	var created, expires, revoked int64
	err = row.Scan(&p.Label, &p.Site, &owner, &capability, &client, &p.Certificate, &secret, &created, &expires, &revoked)
	if errors.Is(err, sql.ErrNoRows) {
		return p, pseudonym.ErrNone
	}
	if err != nil {
		return p, err
	}
	copy(p.Owner[:], owner)
	copy(p.Capability[:], capability)
	copy(p.Client[:], client)
	p.Created, p.Expires = time.Unix(created, 0), time.Unix(expires, 0)
	if revoked != 0 {
		p.Revoked = time.Unix(revoked, 0)
	}
	if d.seal != nil {
		p.Key, err = d.seal.open(secret, string(p.Label))
	}
	return p, err
}

// Get returns a pseudonym, valid or not. It fails with [pseudonym.ErrNone].
func (d *DB) Get(ctx context.Context, l pseudonym.Label) (Pseudonym, error) {
	return d.scan(d.sql.QueryRowContext(ctx, `SELECT `+pseudonymColumns+` FROM pseudonyms WHERE label = $1`, l))
}

// Route is where a pseudonym leads.
type Route struct {
	Tenant
	Until time.Time // the pseudonym ends then, unless it is renewed
}

// Route returns where a valid pseudonym leads. It fails with [pseudonym.ErrNone].
func (d *DB) Route(ctx context.Context, l pseudonym.Label, now time.Time) (r Route, err error) {
	var until int64
	r.Tenant, err = scanTenant(d.sql.QueryRowContext(ctx, `SELECT `+tenantColumns+`, expires FROM pseudonyms JOIN tenants USING (site) WHERE label = $1 AND expires > $2 AND revoked = 0`, l, now.Unix()), &until)
	r.Until = time.Unix(until, 0)
	return r, err
}

// validAtOnce is how many labels one query asks for.
const validAtOnce = 1000

// Valid returns those of some labels that may be used, with their sites.
func (d *DB) Valid(ctx context.Context, labels []pseudonym.Label, now time.Time) (map[pseudonym.Label]string, error) {
	valid := make(map[pseudonym.Label]string, len(labels))
	for some := range slices.Chunk(labels, validAtOnce) {
		if err := d.validOf(ctx, some, now, valid); err != nil {
			return nil, err
		}
	}
	return valid, nil
}

func (d *DB) validOf(ctx context.Context, labels []pseudonym.Label, now time.Time, valid map[pseudonym.Label]string) error {
	args, places := []any{now.Unix()}, make([]string, len(labels))
	for i, l := range labels {
		args = append(args, l)
		places[i] = fmt.Sprint("$", len(args))
	}
	rows, err := d.sql.QueryContext(ctx, `SELECT label, site FROM pseudonyms WHERE expires > $1 AND revoked = 0 AND label IN (`+strings.Join(places, `, `)+`)`, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var l pseudonym.Label
		var site string
		if err := rows.Scan(&l, &site); err != nil {
			return err
		}
		valid[l] = site
	}
	return rows.Err()
}

// Owned returns the pseudonyms of one person, the oldest first.
func (d *DB) Owned(ctx context.Context, o pseudonym.Owner) ([]Pseudonym, error) {
	return d.pseudonyms(ctx, `WHERE owner = $1 ORDER BY created, label`, o[:])
}

// pseudonyms returns those that a query selects, which begins after the name of the table.
func (d *DB) pseudonyms(ctx context.Context, query string, args ...any) (all []Pseudonym, err error) {
	rows, err := d.sql.QueryContext(ctx, `SELECT `+pseudonymColumns+` FROM pseudonyms `+query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		p, err := d.scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, rows.Err()
}

// Revoke ends a pseudonym. It fails with [pseudonym.ErrNone] if there is none that is not revoked.
func (d *DB) Revoke(ctx context.Context, l pseudonym.Label, now time.Time) error {
	return d.change(ctx, l, pseudonym.ErrNone, `UPDATE pseudonyms SET revoked = $1 WHERE label = $2 AND revoked = 0`, now.Unix(), l)
}

// Renew gives a pseudonym that is not revoked a new certificate and end. It fails with [pseudonym.ErrNone].
func (d *DB) Renew(ctx context.Context, l pseudonym.Label, certificate []byte, expires time.Time) error {
	return d.change(ctx, l, pseudonym.ErrNone, `UPDATE pseudonyms SET certificate = $1, expires = $2 WHERE label = $3 AND revoked = 0`, certificate, expires.Unix(), l)
}
