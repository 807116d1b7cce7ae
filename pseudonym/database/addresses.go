package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/address"
)

// AddressKey is a key of pseudo-addresses.
type AddressKey struct {
	Number  int64 // the newest key has the largest
	Key     address.Key
	Created time.Time
}

func (k *AddressKey) name() string { return fmt.Sprint("address ", k.Number) }

// AddAddressKey adds a key, sealed with a seal that switches and nameservers alone have, and tells watchers by [pseudonym.Addresses]. It
// fails with [ErrExists] if another switch was faster.
func (d *DB) AddAddressKey(ctx context.Context, seal *Seal, k AddressKey) error {
	return d.change(ctx, pseudonym.Addresses, ErrExists, `INSERT INTO address_keys (number, secret, created) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
		k.Number, seal.close(k.Key[:], k.name()), k.Created.Unix())
}

// AddressKeys returns all keys, the newest first.
func (d *DB) AddressKeys(ctx context.Context, seal *Seal) (all []AddressKey, err error) {
	rows, err := d.sql.QueryContext(ctx, `SELECT number, secret, created FROM address_keys ORDER BY number DESC`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var k AddressKey
		var secret []byte
		var created int64
		if err := rows.Scan(&k.Number, &secret, &created); err != nil {
			return nil, err
		}
		key, err := seal.open(secret, k.name())
		if err == nil && len(key) != len(k.Key) {
			err = errors.New("a key of addresses has a wrong length")
		}
		if err != nil {
			return nil, err
		}
		copy(k.Key[:], key)
		k.Created = time.Unix(created, 0)
		all = append(all, k)
	}
	return all, rows.Err()
}

// DropAddressKeys deletes the keys but those of two numbers and between them.
func (d *DB) DropAddressKeys(ctx context.Context, first, last int64) error {
	_, err := d.sql.ExecContext(ctx, `DELETE FROM address_keys WHERE number < $1 OR number > $2`, first, last)
	return err
}

// AddNumber gives a site its number. It fails with [ErrExists] if the site has one, or another site has this one.
func (d *DB) AddNumber(ctx context.Context, site string, number uint16) error {
	return d.change(ctx, pseudonym.Addresses, ErrExists, `INSERT INTO address_numbers (number, site) VALUES ($1, $2) ON CONFLICT DO NOTHING`, number, site)
}

// Numbers returns the numbers of sites.
func (d *DB) Numbers(ctx context.Context) (map[string]uint16, error) {
	rows, err := d.sql.QueryContext(ctx, `SELECT site, number FROM address_numbers`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]uint16{}
	for rows.Next() {
		var site string
		var number uint16
		if err := rows.Scan(&site, &number); err != nil {
			return nil, err
		}
		all[site] = number
	}
	return all, rows.Err()
}
