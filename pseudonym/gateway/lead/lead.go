// Package lead has what the switches of moved connections have in common.
//
// The machine of the gateway routes between clients and tenants, or a bridge that it is at joins them. A switch rewrites the destination of a
// client's packets to the tenant's address, and the source of the tenant's packets to the gateway's. An entry ends some time after the last packet,
// and the first packet of a new connection from a port that was used before ends the one of the old connection, if that has ended. A tenant does not get
// that packet: it is asked by an acknowledgement whether the old connection has ended, since another server of its machine may listen at its address and port.
// Established connections go on without the gateway.
//
// The switch of BPF can also leave a client's packets as they are, for a tenant in a network of this machine that answers with the gateway's address itself.
package lead

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"time"

	"heddle/internal/errhint"
	"heddle/internal/sysctl"
)

// Kind is a kind of switch.
type Kind string

// The kinds of switches. The zero Kind is Auto.
const (
	Auto Kind = "auto" // BPF if the machine allows that, else NFT
	BPF  Kind = "bpf"  // programs at devices
	NFT  Kind = "nft"  // rules of nftables
	OVS  Kind = "ovs"  // flows of a bridge of Open vSwitch
)

// Kinds returns the names of all.
func Kinds() []string { return []string{string(Auto), string(BPF), string(NFT), string(OVS)} }

// Idle is how long an entry lasts after the last packet of its connection. Keep-alive probes count.
const Idle = 10 * time.Minute

// EndedFor is how long the entry of a connection that has ended lasts after the last packet of both sides. A side sends its last byte again as long as that
// is not acknowledged, on Linux at most two minutes after the last time (TCP_RTO_MAX). Without an entry it would leave with the tenant's address: whoever
// keeps the client's packets back would learn that.
const EndedFor = 3 * time.Minute

// Most bounds the connections of a switch, or those of each family.
const Most = 1 << 20

// Settler is a switch that may pass packets to this machine for a while after it leads them. The socket of the connection must ignore them until
// Settle returns.
type Settler interface{ Settle() }

// Connection is one that a switch leads.
type Connection struct {
	Client, Gateway, Tenant netip.AddrPort
	Direct                  bool      // the tenant answers past this machine
	Last                    time.Time // packet
}

// Family is a family of addresses that the machine routes.
type Family struct {
	V6  bool
	TTL byte // or hop limit, of the machine's own packets
}

// Settings: those which let a machine route IPv4 and IPv6, and the TTL of its own packets.
const (
	forwarding4 = "/proc/sys/net/ipv4/ip_forward"
	forwarding6 = "/proc/sys/net/ipv6/conf/all/forwarding"
	defaultTTL4 = "/proc/sys/net/ipv4/ip_default_ttl"
	defaultTTL6 = "/proc/sys/net/ipv6/conf/all/hop_limit"
)

// Families returns those that the machine routes. It fails if there is none.
func Families() (all []Family, err error) {
	for _, f := range []struct {
		v6         bool
		forwarding string
	}{{false, forwarding4}, {true, forwarding6}} {
		on, err := sysctl.Get(f.forwarding)
		if errors.Is(err, fs.ErrNotExist) || err == nil && on != "1" {
			continue
		}
		ttl, other := OwnTTL(f.v6)
		if err := errors.Join(err, other); err != nil {
			return nil, err
		}
		all = append(all, Family{f.v6, ttl})
	}
	if len(all) == 0 {
		return nil, &errhint.Error{What: "the switch", Why: "this machine does not route packets to tenants", Hint: "sysctl -w " + sysctl.Name(forwarding4) + "=1"}
	}
	return all, nil
}

// OwnTTL returns the TTL or hop limit of the machine's own packets.
func OwnTTL(v6 bool) (byte, error) {
	text, err := sysctl.Get(map[bool]string{false: defaultTTL4, true: defaultTTL6}[v6])
	ttl, other := strconv.ParseUint(text, 10, 8)
	return byte(ttl), cmp.Or(err, other)
}

// Check fails if no switch can lead a connection between client and gateway to its tenant.
func Check(client, gateway, tenant netip.AddrPort) error {
	if v6 := client.Addr().Is6(); !client.IsValid() || !gateway.IsValid() || !tenant.IsValid() || gateway.Addr().Is6() != v6 || tenant.Addr().Is6() != v6 || gateway.Port() != tenant.Port() {
		return fmt.Errorf("a connection of %v and %v cannot be that of %v", client, gateway, tenant)
	}
	return nil
}

// NotRouted says that the machine does not route the family of an address.
func NotRouted(client netip.AddrPort) error {
	return fmt.Errorf("this machine does not route packets of %v", client.Addr())
}
