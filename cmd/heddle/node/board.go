package node

import (
	"context"
	"net/netip"
	"sync"

	"heddle/board"
	"heddle/board/registry"
	"heddle/config"
	"heddle/overlay/node"
)

// register has a node on the board that it names, until stop takes it off. A board that cannot be reached keeps no node
// from running.
func register(ctx context.Context, n config.Node, o node.Options, at netip.AddrPort) (stop func(), err error) {
	if n.Board == "" {
		return func() {}, nil
	}
	reference, err := board.LoadReference(n.Board)
	if err != nil {
		return nil, err
	}
	client, err := board.NewClient(board.ClientOptions{Reference: reference, Identity: o.Identity, Log: o.Log})
	if err != nil {
		return nil, err
	}
	entry := registry.Node{Name: o.Name, Key: o.Identity.Key(), Addresses: n.Address, Modes: o.Modes, ASN: uint32(n.ASN)}
	if len(entry.Addresses) == 0 {
		entry.Addresses = []string{at.String()}
	}
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() {
		defer client.Close()
		if err := registry.Keep(ctx, client, entry, registry.Lease, o.Log); err != nil {
			o.Log.Error("the board does not list this node", "err", err)
		}
	})
	return func() {
		cancel()
		keeping.Wait()
	}, nil
}
