package lab

import (
	"fmt"

	"heddle/internal/nft"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// masquerade makes all that the host forwards out of a device leave with that device's address, IPv4 and IPv6, as
// behind a home router. The kernel keeps the source port where no other flow has it.
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
