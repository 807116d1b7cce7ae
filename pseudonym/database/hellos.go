package database

import (
	"context"
	"fmt"
	"time"

	"heddle/pseudonym"
)

// Hello is a key that opens encrypted ClientHellos.
type Hello struct {
	Number  int64  // the newest key has the largest
	Config  []byte // an ECHConfig
	Private []byte // empty for those who read without the seal
	Created time.Time
}

func (h *Hello) name() string { return fmt.Sprint("hello ", h.Number) }

// AddHello adds a key, sealed with a seal that only gateways have, and tells watchers by [pseudonym.Hellos]. It fails with [ErrExists] if
// another gateway was faster.
func (d *DB) AddHello(ctx context.Context, seal *Seal, h Hello) error {
	return d.change(ctx, pseudonym.Hellos, ErrExists, `INSERT INTO hellos (number, config, secret, created) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
		h.Number, h.Config, seal.close(h.Private, h.name()), h.Created.Unix())
}

// Hellos returns all keys, the newest first. Without the seal of gateways they have no private part.
func (d *DB) Hellos(ctx context.Context, seal *Seal) (all []Hello, err error) {
	rows, err := d.sql.QueryContext(ctx, `SELECT number, config, secret, created FROM hellos ORDER BY number DESC`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var h Hello
		var secret []byte
		var created int64
		if err := rows.Scan(&h.Number, &h.Config, &secret, &created); err != nil {
			return nil, err
		}
		h.Created = time.Unix(created, 0)
		if seal != nil {
			if h.Private, err = seal.open(secret, h.name()); err != nil {
				return nil, err
			}
		}
		all = append(all, h)
	}
	return all, rows.Err()
}

// DropHellos deletes the keys before a number.
func (d *DB) DropHellos(ctx context.Context, before int64) error {
	_, err := d.sql.ExecContext(ctx, `DELETE FROM hellos WHERE number < $1`, before)
	return err
}

// DropHellosAfter deletes the keys that were made after a time.
func (d *DB) DropHellosAfter(ctx context.Context, after time.Time) error {
	_, err := d.sql.ExecContext(ctx, `DELETE FROM hellos WHERE created > $1`, after.Unix())
	return err
}
