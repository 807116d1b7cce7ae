package nat

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// What a lease costs beside others: leasing, renewing and releasing.
func BenchmarkLease(b *testing.B) {
	for _, others := range []int{0, 1000} {
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			w := newWorld(b, true)
			table := w.open(Options{})
			w.node.Do(w.t, func() error {
				for i := range others {
					r := Rule{Client: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Listen: netip.AddrPortFrom(node4, 0), To: server4}
					if _, err := table.Lease(r, time.Minute); err != nil {
						return err
					}
				}
				b.ResetTimer()
				for range b.N {
					l, err := table.Lease(rule4(), time.Minute)
					if err != nil {
						return err
					}
					if _, err = table.Renew(l.Rule, time.Minute); err != nil {
						return err
					}
					if err = table.Release(l.Rule); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
