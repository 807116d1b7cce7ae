package database

import (
	"context"
	"time"

	"heddle/pseudonym"
)

// Labels returns the valid pseudonyms of a site that were made at a time or later, which is exact to a second.
func (d *DB) Labels(ctx context.Context, site string, since, now time.Time) ([]pseudonym.Label, error) {
	return labels(d.sql.QueryContext(ctx, `SELECT label FROM pseudonyms WHERE site = $1 AND created >= $2 AND revoked = 0 AND expires > $3`, site, since.Unix(), now.Unix()))
}
