package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"heddle/internal/errhint"
	"heddle/internal/tcprepair"
)

// A site's machine that answers directly has the gateway's address for connections alone that were moved to it. It takes packets to the address by a rule of the
// operator's, and sends from it past the gateway's machine. An agent looks whether both hold before it takes a connection, as nobody could give it
// back later.

// restore makes the socket of a connection. If this machine answers directly, a client may have begun anew from its port, and this machine still have its former
// connection: the client's first packet went to the gateway.
func restore(s tcprepair.State, direct bool) (*tcprepair.Held, error) {
	o := tcprepair.Options{Foreign: direct}
	held, err := tcprepair.Restore(s, o)
	if direct && errors.Is(err, syscall.EADDRNOTAVAIL) {
		if err := end(s.Local, s.Remote); err != nil {
			return nil, err
		}
		return tcprepair.Restore(s, o)
	}
	return held, err
}

// directTable is the table of routes that hints name.
const directTable = 4444

// answers reports why this machine cannot answer the client of a connection directly, or nil. The gateway's machine has the address peer.
func (a *Agent) answers(s tcprepair.State, own, peer netip.Addr) error {
	if at := s.Local.Addr(); !slices.Contains(a.Direct, at) {
		return &errhint.Error{What: "a connection of " + s.Local.String(), Why: "this agent does not answer from that address",
			Hint: fmt.Sprintf("direct = [%q] for the agent, or handoff:ADDRESS for tenant add", at)}
	}
	return answersFrom(time.Now(), s.Local, s.Remote, own, peer)
}

// takesBy are the commands by which a machine takes packets to an address that arrive at a device. They leave out the protocols by which a machine tells its
// neighbours that it has an address.
func takesBy(device string, address netip.Addr) string {
	ip, icmp := "ip", "icmp"
	if address.Is6() {
		ip, icmp = "ip -6", "ipv6-icmp"
	}
	text := fmt.Sprintf("%s route add local %v dev lo table %d", ip, address, directTable)
	for _, protocol := range []string{"tcp", icmp} {
		text += fmt.Sprintf("; %s rule add iif %s to %v ipproto %s lookup %d", ip, device, address, protocol, directTable)
	}
	return text
}
