package node

import (
	"context"

	"heddle/config"
	"heddle/overlay/nat"
	"heddle/overlay/natnode"
	"heddle/overlay/node"
)

// natHook gives the node the kernel's leases, until stop.
func natHook(ctx context.Context, n config.Node, o *node.Options) (stop func(), err error) {
	first, last, err := n.NATPortRange()
	if err != nil {
		return nil, err
	}
	return natnode.Attach(ctx, o, nat.Options{First: first, Last: last, SetForwarding: n.SetForwarding})
}
