package backendtest

import (
	"fmt"
	"testing"

	"github.com/google/nftables"

	"heddle/internal/nft"
	"heddle/internal/polltest"
)

// AwaitGuard waits until the guard's table at the client has a rule for each device and the drop rule.
func (w *World) AwaitGuard(t testing.TB, table *nftables.Table) {
	t.Helper()
	polltest.Until(t, func() error {
		return w.Client.Run(func() error {
			conn, err := nft.Connect()
			if err != nil {
				return err
			}
			rules, _ := conn.GetRules(table, &nftables.Chain{Name: "postrouting", Table: table})
			if len(rules) != Ways+1 {
				return fmt.Errorf("the guard has %d rules", len(rules))
			}
			return nil
		})
	})
}
