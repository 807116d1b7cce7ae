package database

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func moveOf(client string, tenant byte) Move {
	return Move{Client: netip.MustParseAddrPort(client), Gateway: netip.MustParseAddrPort("192.0.2.1:443"), Tenant: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 1, tenant}), 443)}
}

// A switch learns of the connections of others, and of changes, until nobody sees them any more.
func TestMoves(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d, other := t.Context(), open(t, at), open(t, at)
		var many []Move
		for i := range movesAtOnce + 1 {
			many = append(many, moveOf(fmt.Sprintf("198.51.100.2:%d", 1000+i), 2))
		}
		six := moveOf("198.51.100.2:1", 2)
		six.Client, six.Direct = netip.MustParseAddrPort("[2001:db8::1]:1"), true
		many = append(many, six)
		if err := d.PutMoves(ctx, "first", many); err != nil {
			t.Fatal(err)
		}
		if all, _, err := d.Moves(ctx, "first", time.Unix(0, 0)); err != nil || len(all) != 0 {
			t.Errorf("it learns %d of its own, %v", len(all), err)
		}
		all, now, err := other.Moves(ctx, "second", time.Unix(0, 0))
		if err != nil || len(all) != len(many) {
			t.Fatalf("%d of %d, %v", len(all), len(many), err)
		}
		seen := map[Move]bool{}
		for _, m := range all {
			seen[m] = true
		}
		if !seen[six] || !seen[many[0]] {
			t.Errorf("%v and %v are others", six, many[0])
		}
		if all, _, err := other.Moves(ctx, "second", now.Add(time.Hour)); err != nil || len(all) != 0 {
			t.Errorf("%d of the future, %v", len(all), err)
		}
		changed := moveOf("198.51.100.2:1000", 3) // a client uses its port again
		changed.Direct = true
		if err := other.PutMoves(ctx, "second", []Move{changed}); err != nil {
			t.Fatal(err)
		}
		if all, _, err := d.Moves(ctx, "first", now); err != nil || len(all) != 1 || all[0] != changed {
			t.Errorf("%v, %v", all, err)
		}
		if _, err := d.sql.ExecContext(ctx, `UPDATE moves SET seen = seen - 3600 WHERE switch = 'first'`); err != nil {
			t.Fatal(err)
		}
		if err := other.DropMoves(ctx, time.Minute); err != nil {
			t.Fatal(err)
		}
		if all, _, err := d.Moves(ctx, "third", time.Unix(0, 0)); err != nil || len(all) != 1 || all[0] != changed {
			t.Errorf("%v, %v", all, err)
		}
	})
}
