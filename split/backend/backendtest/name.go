package backendtest

import (
	"context"
	"net/netip"
	"sync/atomic"
)

// Name is a server name whose addresses a test sets.
type Name struct {
	all atomic.Pointer[[]netip.AddrPort]
}

// Set sets the addresses. Call it before Lookup.
func (n *Name) Set(all ...netip.AddrPort) { n.all.Store(&all) }

// Lookup returns the addresses that Set set.
func (n *Name) Lookup(context.Context, string) ([]netip.AddrPort, error) { return *n.all.Load(), nil }
