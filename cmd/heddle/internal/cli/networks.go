package cli

import (
	"fmt"
	"net/netip"

	"heddle/path"
)

// Networks reads the addresses and networks of the flag --client.
func Networks(clients []string) (all []netip.Prefix, err error) {
	for _, c := range clients {
		n, err := netip.ParsePrefix(c)
		if err != nil {
			var a netip.Addr
			a, err = netip.ParseAddr(c)
			n = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
		}
		if err != nil {
			return nil, Usage(&path.Error{What: fmt.Sprintf("--client %q", c), Why: "it is no address and no network",
				Hint: "for example --client 192.0.2.7, or --client 10.0.0.0/8"})
		}
		all = append(all, n)
	}
	return all, nil
}
