package node

import (
	"context"
	"fmt"

	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/overlay/nat"
	"heddle/overlay/natnode"
	"heddle/overlay/node"
	"heddle/path"
)

// natHook gives the node the kernel's leases, until stop.
func natHook(ctx context.Context, n config.Node, r *runner.Runner, o *node.Options) (stop func(), err error) {
	first, last, err := n.NATPortRange()
	if err != nil {
		return nil, err
	}
	options := nat.Options{First: first, Last: last, SetForwarding: n.SetForwarding}
	if r.Seen() {
		options.Journal = nat.JournalFile(control.Dir(), r.Name)
	} else if n.SetForwarding {
		return nil, &path.Error{What: "set-forwarding", Why: fmt.Sprintf("nobody could take back what a crash leaves, as this node cannot run under the name %s", r.Name),
			Hint: "the warning above says why; give this node another name with --name, or set HEDDLE_RUN_DIR"}
	}
	return natnode.Attach(ctx, o, options)
}
