package nftswitch

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/internal/nft"
)

// The answers to changes that failed are none to later ones.
func TestChangesAfterAnError(t *testing.T) {
	w := newWorld(t, false)
	w.gateway.Do(t, func() error {
		c, err := newChanges()
		if err != nil {
			return err
		}
		defer c.close()
		for _, one := range []struct {
			table string
			want  error
		}{{"none", unix.ENOENT}, {Table, nil}} {
			sets := newSets(nft.Inet(one.table), false)
			err := c.commit(func() {
				c.add(sets.to, key(w.at, w.public), w.inside.Addr().AsSlice(), Idle, false)
				c.add(sets.back, key(w.inside, w.at), w.public.Addr().AsSlice(), Idle, true)
			})
			if !errors.Is(err, one.want) {
				t.Errorf("in the table %s: %v", one.table, err)
			}
		}
		return nil
	})
}
