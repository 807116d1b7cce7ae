package lab

import (
	"fmt"

	"heddle/internal/nft"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// masquerade makes all packets forwarded out of a device leave with its IPv4 or IPv6 address, like a home router. The
// kernel keeps the source port if no other flow uses it.
func (h *Host) masquerade(device string) error {
	err := nft.Change(func(conn *nftables.Conn) error {
		table := conn.AddTable(nft.Inet("heddle-lab"))
		chain := conn.AddChain(&nftables.Chain{Name: "masquerade", Table: table, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: nft.Join(nft.Out(device), []expr.Any{&expr.Masq{}})})
		return nil
	}, nftables.WithNetNSFd(int(h.ns.handle)))
	if err != nil {
		return fmt.Errorf("host %s: masquerade behind %s: %w", h.spec.Name, device, err)
	}
	return nil
}
