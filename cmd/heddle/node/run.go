package node

import (
	"context"
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

// nodeDefaults are what holds where neither a file nor a flag says otherwise.
var nodeDefaults = config.DefaultNode()

func newRunCommand() *cobra.Command {
	n := nodeDefaults
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "run [FILE]",
		Short: "Be an overlay node, for holders of a grant",
		Long: `Run is an overlay node until interrupted. It connects to servers for those who
hold a grant that one of its grantors signed, and for nobody else: without a
grantor it does not start. FILE is a node.toml, with keys named as the flags; a
flag goes before the key.

Mode forward needs no privilege. Mode nat has the kernel pass TCP on by nftables
rules in tables of its own, and needs CAP_NET_ADMIN; each rule is a lease, which
the kernel ends even where this program was killed. A client's MPTCP passes it.

It listens on one port, TCP and UDP, with TLS 1.3, in which both sides prove
their keys. It leads to public addresses, unless a grant names others; where
--deny says so no grant leads. What is revoked is read again when it has
changed.

What it hides: from servers and their networks who connects, and from the
clients' networks to whom. What it does not: either from the node itself, or
from somebody who watches both its sides. Destinations are not written down,
unless --log-targets is given.`,
		Example: `  heddle node run node.toml
  heddle node run --grantor ed25519:KEY --listen :7443`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if err := bind.FlagsOver(cmd, func() error { return cli.Loaded(cmd, args[0], config.LoadNode, &n) }); err != nil {
					return err
				}
			}
			if err := cli.UsageBy(cmd, n.Check()); err != nil {
				return err
			}
			return runNode(cmd, n, asJSON)
		},
	}
	flags := cmd.Flags()
	bind.Flags(cmd, &n)
	flags.BoolVar(&asJSON, "json", false, "print what was done as JSON at the end")
	return cmd
}

// runNode serves until the command's context ends.
func runNode(cmd *cobra.Command, n config.Node, asJSON bool) error {
	o, err := n.Options()
	if err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	o.Log = slog.New(slog.NewTextHandler(stderr, nil))
	stop, err := hooks(cmd.Context(), n, &o)
	if err != nil {
		return err
	}
	defer stop()
	at, err := n.ListenAddr()
	if err != nil {
		return err
	}
	listener, socket, err := path.ListenBoth(cmd.Context(), at)
	if err != nil {
		return err
	}
	running, err := node.New(listener, socket, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "node: %s listens on %v for %s of %s; its key is %v\n", o.Name, running.Addr(), strings.Join(o.Modes, ", "), text.Count(len(o.Grantors), "grantor"), running.Key())
	entry := registry.Node{Name: o.Name, Key: o.Identity.Key(), Addresses: n.Address, Modes: o.Modes, ASN: uint32(n.ASN)}
	if len(entry.Addresses) == 0 {
		entry.Addresses = []string{running.Addr().String()}
	}
	unlist, err := registry.List(cmd.Context(), n.Board, o.Identity, entry, o.Log)
	if err != nil {
		return err
	}
	as := runner.Options{Name: "node-" + o.Name, Taken: runner.GoUnseen, Talk: stderr}
	err = runner.Run(cmd.Context(), as, func(ctx context.Context, r *runner.Runner) error {
		r.Show(func() control.Status {
			s := running.Status()
			return control.Status{Node: &s}
		})
		return running.Run(ctx)
	})
	unlist()
	status := running.Status()
	if asJSON {
		if jsonErr := cli.WriteJSON(cmd.OutOrStdout(), status); err == nil {
			err = jsonErr
		}
		return err
	}
	fmt.Fprintf(stderr, "node: %s; %d bytes up, %d down, for %s\n", text.Count(int(status.Flows), "flow"), status.Up, status.Down, text.Count(len(status.Grants), "grant"))
	return err
}

// hooks gives the node what its modes need. stop ends that.
func hooks(ctx context.Context, n config.Node, o *node.Options) (stop func(), err error) {
	if slices.Contains(o.Modes, client.ModeSurvey) {
		o.Survey = (&survey.Answerer{}).Survey
	}
	if !slices.Contains(o.Modes, client.ModeNAT) {
		return func() {}, nil
	}
	return natHook(ctx, n, o)
}
