package database

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Move is a connection that a switch leads to a tenant's machine.
type Move struct {
	Client, Gateway, Tenant netip.AddrPort
	Direct                  bool // the tenant answers the client past the switch
}

// movesAtOnce is how many moves one statement writes.
const movesAtOnce = 1000

// clock is the database's own, in seconds.
func (d *DB) clock() string {
	if d.pool != nil {
		return `CAST(extract(epoch FROM clock_timestamp()) AS BIGINT)`
	}
	return `unixepoch()`
}

// PutMoves notes connections that a switch sees now. Each may be noted already, and none is there twice.
func (d *DB) PutMoves(ctx context.Context, by string, all []Move) error {
	for len(all) > 0 {
		some := all[:min(movesAtOnce, len(all))]
		all = all[len(some):]
		args, rows := []any{by}, make([]string, len(some))
		for i, m := range some {
			rows[i] = fmt.Sprintf(`($%d, $%d, $%d, $%d, $1, %s)`, len(args)+1, len(args)+2, len(args)+3, len(args)+4, d.clock())
			args = append(args, m.Client.String(), m.Gateway.String(), m.Tenant.String(), m.Direct)
		}
		_, err := d.sql.ExecContext(ctx, `INSERT INTO moves (client, gateway, tenant, direct, switch, seen) VALUES `+strings.Join(rows, `, `)+
			` ON CONFLICT (client, gateway) DO UPDATE SET tenant = excluded.tenant, direct = excluded.direct, switch = excluded.switch, seen = excluded.seen`, args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// Moves returns the connections that other switches have seen since a time of the database's clock, and that clock.
func (d *DB) Moves(ctx context.Context, not string, since time.Time) (all []Move, now time.Time, err error) {
	var seconds int64
	if err := d.sql.QueryRowContext(ctx, `SELECT `+d.clock()).Scan(&seconds); err != nil {
		return nil, now, err
	}
	rows, err := d.sql.QueryContext(ctx, `SELECT client, gateway, tenant, direct FROM moves WHERE seen >= $1 AND switch <> $2`, since.Unix(), not)
	if err != nil {
		return nil, now, err
	}
	defer rows.Close()
	for rows.Next() {
		var text [3]string
		var m Move
		if err := rows.Scan(&text[0], &text[1], &text[2], &m.Direct); err != nil {
			return nil, now, err
		}
		for i, to := range []*netip.AddrPort{&m.Client, &m.Gateway, &m.Tenant} {
			if *to, err = netip.ParseAddrPort(text[i]); err != nil {
				return nil, now, fmt.Errorf("a connection in the database: %w", err)
			}
		}
		all = append(all, m)
	}
	return all, time.Unix(seconds, 0), rows.Err()
}

// DropMoves deletes connections that no switch has seen for so long.
func (d *DB) DropMoves(ctx context.Context, unseen time.Duration) error {
	_, err := d.sql.ExecContext(ctx, `DELETE FROM moves WHERE seen < `+d.clock()+` - $1`, int64(unseen/time.Second))
	return err
}
