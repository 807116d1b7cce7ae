package plane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"heddle/path"
)

const lookupPatience = 10 * time.Second

// lookupServer reads HOST:PORT and looks the host up by this machine's own resolver.
func lookupServer(ctx context.Context, to string) ([]netip.AddrPort, error) {
	host, text, err := net.SplitHostPort(to)
	var port uint64
	if err == nil {
		port, err = strconv.ParseUint(text, 10, 16)
	}
	if err != nil || port == 0 || host == "" {
		return nil, &path.Error{What: fmt.Sprintf("server %q", to), Why: "not a host and a port",
			Hint: "write vpn.example.com:51820, 192.0.2.1:51820 or [2001:db8::1]:51820"}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err == nil && len(addresses) == 0 {
		err = errors.New("no addresses")
	}
	if err != nil {
		return nil, &path.Error{What: "server " + host, Why: "its name does not resolve", Hint: "check the name and this machine's DNS, or write the address", Err: err}
	}
	var all []netip.AddrPort
	for _, a := range addresses {
		all = append(all, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	return all, nil
}
