package database

import (
	"context"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

// Labels returns the valid pseudonyms of a site that were made at a time or later, which is exact to a second.
func (d *DB) Labels(ctx context.Context, site string, since, now time.Time) ([]pseudonym.Label, error) {
	return labels(d.sql.QueryContext(ctx, `SELECT label FROM pseudonyms WHERE site = $1 AND created >= $2 AND revoked = 0 AND expires > $3`, site, since.Unix(), now.Unix()))
}

// Holder is who has a valid pseudonym.
type Holder struct {
	Label      pseudonym.Label
	Client     ca.KeyID
	Capability pseudonym.Capability
	Created    time.Time
	Expires    time.Time
}

const holders = `SELECT label, created, expires, client, capability FROM pseudonyms WHERE site = $1 AND created >= $2 AND revoked = 0 AND expires > $3 ORDER BY created DESC LIMIT $4`

// Holders returns who has the pseudonyms of a site that were made last, at a time or later: the last one first, and so many at most.
func (d *DB) Holders(ctx context.Context, site string, since, now time.Time, most int) (all []Holder, err error) {
	rows, err := d.sql.QueryContext(ctx, holders, site, since.Unix(), now.Unix(), most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var h Holder
		var created, expires int64
		var client, capability []byte
		if err := rows.Scan(&h.Label, &created, &expires, &client, &capability); err != nil {
			return nil, err
		}
		copy(h.Client[:], client)
		copy(h.Capability[:], capability)
		h.Created, h.Expires = time.Unix(created, 0), time.Unix(expires, 0)
		all = append(all, h)
	}
	return all, rows.Err()
}
