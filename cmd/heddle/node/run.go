package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"heddle/board/registry"
	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/internal/text"
	"heddle/overlay/client"
	"heddle/overlay/node"
	"heddle/overlay/survey"
	"heddle/path"
)

// nodeDefaults apply without a file or flags.
var nodeDefaults = config.DefaultNode()

func newRunCommand() *cobra.Command {
	n := struct {
		config.Node
		JSON bool `flag:"json" help:"print what was done as JSON at the end"`
	}{Node: nodeDefaults}
	return bind.Flags(&cobra.Command{
		Use:   "run [FILE]",
		Short: "Be an overlay node, for holders of a grant",
		Long: `Run makes this machine an overlay node until it is interrupted. The node
connects to servers for holders of a grant that one of its grantors signed, and
for nobody else. It does not start without a grantor. FILE is a node.toml, whose
keys have the names of the flags. A flag overrides its key.

Mode forward needs no privilege. Mode nat needs CAP_NET_ADMIN: the kernel
forwards TCP by nftables rules in tables of Heddle's own. Each rule is a lease,
which the kernel ends even if this program was killed. A client's MPTCP passes
through.

The node listens on one port, TCP and UDP, with TLS 1.3. Both sides prove their
keys. The node connects to public addresses only, unless a grant names others.
No grant permits what --deny names. The node reads the list of revoked grants
again when the file changes.

The node hides clients from servers and their networks, and servers from the
networks of the clients. It does not hide them from itself, nor from an observer
of both its sides. It logs no destinations without --log-targets.`,
		Example: `  heddle node run node.toml
  heddle node run --grantor ed25519:KEY --listen :7443`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.FileUnderFlags(cmd, args, config.LoadNode, &n.Node); err != nil {
				return err
			}
			if err := cli.UsageBy(cmd, n.Check()); err != nil {
				return err
			}
			return runNode(cmd, n.Node, n.JSON)
		},
	}, &n)
}

// runNode serves until the command's context ends.
func runNode(cmd *cobra.Command, n config.Node, asJSON bool) error {
	o, err := n.Options()
	if err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	o.Log = slog.New(slog.NewTextHandler(stderr, nil))
	var running *node.Node
	as := runner.Options{Name: "node-" + o.Name, Taken: runner.GoUnseen, Talk: stderr}
	err = runner.Run(cmd.Context(), as, func(ctx context.Context, r *runner.Runner) error {
		stop, err := hooks(ctx, n, r, &o)
		if err != nil {
			return err
		}
		defer stop()
		at, err := n.ListenAddr()
		if err != nil {
			return err
		}
		listener, socket, err := path.ListenBoth(ctx, at)
		if err != nil {
			return err
		}
		made, err := node.New(listener, socket, o)
		if err != nil {
			return err
		}
		fmt.Fprintf(stderr, "node: %s listens on %v for %s of %s; its key is %v\n", o.Name, made.Addr(), strings.Join(o.Modes, ", "), text.Count(len(o.Grantors), "grantor"), made.Key())
		entry := registry.Node{Name: o.Name, Key: o.Identity.Key(), Addresses: n.Address, Modes: o.Modes, ASN: uint32(n.ASN)}
		if len(entry.Addresses) == 0 {
			entry.Addresses = []string{made.Addr().String()}
		}
		unlist, err := registry.List(ctx, n.Board, o.Identity, entry, o.Log)
		if err != nil {
			return err
		}
		defer unlist()
		running = made
		r.Show(func() control.Status {
			s := made.Status()
			return control.Status{Node: &s}
		})
		return made.Run(ctx)
	})
	if running == nil {
		return err
	}
	status := running.Status()
	if asJSON {
		return errors.Join(err, cli.WriteJSON(cmd.OutOrStdout(), status))
	}
	fmt.Fprintf(stderr, "node: %s; %d bytes up, %d down, for %s\n", text.Count(int(status.Flows), "flow"), status.Up, status.Down, text.Count(len(status.Grants), "grant"))
	return err
}

// hooks gives the node what its modes need, until stop.
func hooks(ctx context.Context, n config.Node, r *runner.Runner, o *node.Options) (stop func(), err error) {
	if slices.Contains(o.Modes, client.ModeSurvey) {
		o.Survey = (&survey.Answerer{}).Survey
	}
	if !slices.Contains(o.Modes, client.ModeNAT) {
		return func() {}, nil
	}
	return natHook(ctx, n, r, o)
}
