package nftswitch

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/internal/nft"
	"heddle/pseudonym/gateway/lead"
	"heddle/pseudonym/gateway/lead/leadtest"
)

// The answers to changes that failed are none to later ones.
func TestChangesAfterAnError(t *testing.T) {
	w := leadtest.NewWorld(t, kind, false)
	w.Gateway.Do(t, func() error {
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
				c.add(sets.to, key(w.At, w.Public), w.Inside.Addr().AsSlice(), lead.Idle, false)
				c.add(sets.back, key(w.Inside, w.At), w.Public.Addr().AsSlice(), lead.Idle, true)
			})
			if !errors.Is(err, one.want) {
				t.Errorf("in the table %s: %v", one.table, err)
			}
		}
		return nil
	})
}
