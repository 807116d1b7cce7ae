package pseudonym

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/internal/netutil"
	"heddle/path"
	"heddle/pseudonym/cloud"
)

// Parts of a cloud that may run apart.
const (
	partStore   = "store"
	partLinker  = "linker"
	partDNS     = "dns"
	partGateway = "gateway"
	partSwitch  = "switch"
)

func newServeCommand() *cobra.Command {
	var f struct {
		Only   []string `flag:"only" help:"run this <PART> only: store, linker, dns, gateway or switch" complete:"store linker dns gateway switch" list:"commas"`
		DryRun bool     `flag:"dry-run" help:"say what would run, and run nothing"`
	}
	parts := []string{partStore, partLinker, partDNS, partGateway, partSwitch}
	return bind.Flags(&cobra.Command{
		Use:   "serve FILE",
		Short: "Run a cloud's store, linker, nameserver and gateway",
		Long: `Serve runs the parts of a cloud until it is interrupted: the store, where users
get pseudonyms and sidecars their certificates; the linker, which leads people
who follow a link from one tenant to another to their pseudonym of it; the
nameserver of the zone; and the gateway, which leads connections to the tenants
by the name in their first message. The gateway relays all bytes, and can read
none. It hands connections over to tenants that run an agent, as gateway-mode
says, and carries none of their bytes then. With v6-prefix a switch leads
packets to tenants by their pseudo-address, and the gateway has no part in it.
The setting switch lets the switch hold and lead what the gateway hands over,
in a process of its own, so that the gateway needs no rights.

With --only it runs some of the parts. Parts on several machines share a
database of PostgreSQL, and learn of changes at once. Each part reads the keys
that it needs: of the files the gateway reads gateway.key alone, by which it
shares with other gateways the keys that open encrypted names (ECH).

A pseudonym that was revoked stops working within five seconds, also in
connections that are open.`,
		Example: `  heddle pseudonym serve /etc/heddle/cloud/cloud.toml
  heddle pseudonym serve cloud.toml --only gateway`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, part := range f.Only {
				if !slices.Contains(parts, part) {
					return cli.Usage(&path.Error{What: "--only " + part, Why: "there is no such part", Hint: "one of " + strings.Join(parts, ", ")})
				}
			}
			c, o, err := loadCloud(cmd, args[0])
			if err != nil {
				return err
			}
			if len(f.Only) > 0 {
				parts = f.Only
			}
			if slices.Contains(f.Only, partSwitch) && o.Device == "" && o.SwitchAt == "" {
				return &path.Error{What: "--only " + partSwitch, Why: "there is nothing to lead", Hint: "set switch, for connections that gateways hand over, or v6-prefix and v6-device"}
			}
			if f.DryRun {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "would serve %s: %s\n", c.Zone, strings.Join(parts, ", "))
				return err
			}
			return runServe(cmd, c, o, parts)
		},
	}, &f)
}

func runServe(cmd *cobra.Command, f config.PseudonymCloud, o cloud.Options, parts []string) error {
	stderr := cmd.ErrOrStderr()
	has := func(part string) bool { return slices.Contains(parts, part) }
	c, err := cloud.Open(cmd.Context(), o, cloud.Parts{Store: has(partStore), Linker: has(partLinker), Gateway: has(partGateway), DNS: has(partDNS), Switch: has(partSwitch)})
	if err != nil {
		return err
	}
	defer c.Close()
	if !c.Leads() && o.SwitchAt == "" && slices.Equal(parts, []string{partSwitch}) {
		return &path.Error{What: "the switch", Why: "it cannot lead packets to tenants", Hint: "look at the warning before"}
	}
	show := func() control.Status {
		s := c.Status()
		return control.Status{Pseudonym: &s}
	}
	running, at, err := begin(cmd.Context(), c, f, parts, runner.Metrics(show))
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "pseudonym: serving %s: %s\n", o.Zone, strings.Join(at, ", "))
	return runner.Run(cmd.Context(), runner.Options{Name: "pseudonym", Taken: runner.AddNumber, Talk: stderr}, func(ctx context.Context, r *runner.Runner) error {
		r.Show(show)
		r.Ready()
		return runner.Together(ctx, running, stderr)
	})
}

// begin opens the ports of all parts, so that a port in use ends the command before anything runs.
func begin(ctx context.Context, c *cloud.Cloud, f config.PseudonymCloud, parts []string, metrics func(context.Context, net.Listener) error) (running []runner.Part, at []string, err error) {
	var open []interface{ Close() error }
	defer func() {
		if err != nil {
			for _, one := range open {
				one.Close()
			}
		}
	}()
	listen := func(key, address string, serve func(context.Context, net.Listener) error) {
		if err != nil {
			return
		}
		var l net.Listener
		if l, err = runner.Listen(ctx, key, address, false); err != nil {
			return
		}
		open, at = append(open, l), append(at, key+" "+l.Addr().String())
		running = append(running, runner.Part{Name: key, Run: func(ctx context.Context) error { return serve(ctx, l) }})
	}
	if f.Metrics != "" {
		listen("metrics", f.Metrics, metrics)
	}
	if slices.Contains(parts, partStore) {
		listen("store", f.Store, c.ServeStore)
		listen("tenants", f.Tenants, c.ServeTenants)
	}
	if slices.Contains(parts, partLinker) {
		listen("linker", f.Linker, c.ServeLinker)
	}
	if slices.Contains(parts, partGateway) {
		for _, address := range f.Listen {
			listen("listen", address, c.ServeGateway)
		}
	}
	if slices.Contains(parts, partSwitch) && f.SwitchAt != "" {
		listen("switch", f.SwitchAt, c.ServeHolds)
		if err == nil && f.SwitchGroup != "" {
			err = netutil.GiveUnix(open[len(open)-1].(net.Listener), f.SwitchGroup)
		}
	}
	if c.Leads() {
		at = append(at, "switch "+f.V6Device)
		running = append(running, runner.Part{Name: partSwitch, Run: c.ServeSwitch})
	}
	if slices.Contains(parts, partDNS) {
		for _, address := range f.DNS {
			listen("dns", address, nil)
			if err != nil {
				break
			}
			streams := open[len(open)-1].(net.Listener)
			var packets *net.UDPConn
			if packets, err = runner.ListenUDP("dns", streams.Addr().String()); err != nil {
				break
			}
			open = append(open, packets)
			running[len(running)-1].Run = func(ctx context.Context) error { return c.ServeZone(ctx, packets, streams) }
		}
	}
	return running, at, err
}
