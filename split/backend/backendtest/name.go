package backendtest

import (
	"context"
	"net/netip"
	"sync"
)

// Name is a server's name, whose addresses a test chooses.
type Name struct {
	mu  sync.Mutex
	all []netip.AddrPort
}

// Set gives the name these addresses.
func (n *Name) Set(all ...netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = all
}

// Lookup finds them.
func (n *Name) Lookup(context.Context, string) ([]netip.AddrPort, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all, nil
}
