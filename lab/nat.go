package lab

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// masquerade makes all that the host forwards out of a device leave with that device's address, IPv4 and IPv6, as
// behind a home router. The kernel keeps the source port where no other flow has it.
func (h *Host) masquerade(device string) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(h.ns.handle)))
	if err != nil {
		return fmt.Errorf("host %s: nftables: %w", h.spec.Name, err)
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "heddle-lab"})
	chain := conn.AddChain(&nftables.Chain{Name: "masquerade", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, device)
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
		&expr.Masq{},
	}})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("host %s: masquerade behind %s: %w", h.spec.Name, device, err)
	}
	return nil
}
