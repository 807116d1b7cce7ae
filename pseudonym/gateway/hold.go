package gateway

import (
	"net"
	"net/netip"

	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/internal/tcprepair"
	"heddle/pseudonym/gateway/lead"
)

// Switch leads the packets of connections that were moved.
type Switch interface {
	// Lead leads what the client sends to the gateway's address to the tenant from now on, and what the tenant sends to the client. Entries end by
	// themselves.
	Lead(client, gateway, tenant netip.AddrPort) error
}

// directSwitch is a switch that can also lead what the client sends to the tenant's machine as it is. The tenant has the gateway's address too, and answers
// the client past this machine.
type directSwitch interface {
	LeadDirect(client, gateway, tenant netip.AddrPort) error
}

// ErrNotDirect says that a switch cannot lead packets to tenants that answer directly.
var ErrNotDirect error = &errhint.Error{What: "the switch", Why: "it leads no packets to sites that answer directly", Hint: `let it be gateway-switch = "bpf"`}

// LeadDirect has a switch lead a connection to a tenant that answers directly. It fails with [ErrNotDirect] if the switch is of another kind.
func LeadDirect(by Switch, client, gateway, tenant netip.AddrPort) error {
	d, can := by.(directSwitch)
	if !can {
		return ErrNotDirect
	}
	return d.LeadDirect(client, gateway, tenant)
}

// Holder holds connections that move.
type Holder interface {
	// Hold begins a move: the connection ignores what arrives from then on, and nobody may use it. If Hold fails, it goes on.
	Hold(*net.TCPConn) (Hold, error)
}

// Hold is a connection that is held.
type Hold interface {
	// Lead leads the connection's packets to a tenant's machine, which has it too.
	Lead(tenant netip.AddrPort) error
	// LeadDirect is Lead to a machine that has the connection with this machine's address, and answers the client itself.
	LeadDirect(tenant netip.AddrPort) error
	// Resume lets the connection go on at this machine. If it fails, the connection is lost.
	Resume() error
	// Reset breaks the connection off, as no machine can go on with it. The client gets a reset, unless a tenant's machine has spoken to it.
	Reset() error
	// Close ends this machine's part, of which the client notices nothing. Nobody may close the connection before it returns.
	Close() error
}

// Here holds connections by the rights of this process.
func Here(leads Switch) Holder { return here{leads} }

type here struct{ leads Switch }

func (h here) Hold(c *net.TCPConn) (Hold, error) {
	held, err := tcprepair.Hold(c)
	if err != nil {
		return nil, err
	}
	return &holdHere{held, h.leads, netutil.AddrPort(c.RemoteAddr()), netutil.AddrPort(c.LocalAddr())}, nil
}

type holdHere struct {
	held            *tcprepair.Held
	leads           Switch
	client, gateway netip.AddrPort
}

func (h *holdHere) Lead(tenant netip.AddrPort) error {
	return h.leads.Lead(h.client, h.gateway, tenant)
}

func (h *holdHere) LeadDirect(tenant netip.AddrPort) error {
	return LeadDirect(h.leads, h.client, h.gateway, tenant)
}

func (h *holdHere) Resume() error {
	_, err := h.held.Resume()
	return err
}

func (h *holdHere) Reset() error { return h.held.Reset() }

func (h *holdHere) Close() error {
	if late, is := h.leads.(lead.Settler); is {
		late.Settle()
	}
	return h.held.Close()
}
