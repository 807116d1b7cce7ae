package backendtest

import (
	"testing"
	"time"

	"github.com/google/nftables"

	"heddle/internal/nft"
)

// AwaitGuard waits until the guard's table at the client has a rule for each device, and the one that drops.
func (w *World) AwaitGuard(t testing.TB, table *nftables.Table) {
	t.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(5 * time.Millisecond) {
		var rules []*nftables.Rule
		w.Client.Do(t, func() error {
			conn, err := nft.Connect()
			if err != nil {
				return err
			}
			rules, _ = conn.GetRules(table, &nftables.Chain{Name: "postrouting", Table: table})
			return nil
		})
		if len(rules) == Ways+1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the guard has %d rules", len(rules))
		}
	}
}
