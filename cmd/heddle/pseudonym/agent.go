package pseudonym

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/internal/tcprepair"
	"heddle/pseudonym/cloud"
	"heddle/pseudonym/gateway"
)

func newTenantAgentCommand() *cobra.Command {
	a := config.DefaultPseudonymAgent()
	return bind.Flags(&cobra.Command{
		Use:   "agent [FILE]",
		Short: "Take over connections that gateways move to this machine",
		Long: `Agent runs beside a sidecar until it is interrupted. Gateways move connections
to it: after the client's first message they hand over the connection itself
and carry none of its bytes. The agent passes it to the sidecar, which listens
at a unix socket. With --to proxy:ADDRESS it relays the bytes to another server
on this machine, such as nginx or HAProxy, which learns the client's address by
the PROXY protocol; connections end with the agent then. FILE is a file whose
keys have the names of the flags. A flag overrides its key.

The agent needs CAP_NET_ADMIN and Linux, and the server neither. The gateway's
machine has to be on the way from this one to clients, and this machine has to
take the gateway's connections at the address that tenant add names:
--address handoff:HOST:PORT.

With --direct ADDRESS, and --address handoff-direct:HOST:PORT, this machine
answers clients from the gateway's address itself, past the gateway's machine.
Both have to be in one network, and this machine needs a route of its own to
clients, and rules by which it takes packets to that address. The agent refuses
connections without them, and heddle pseudonym doctor --agent says what to run.`,
		Example: `  heddle pseudonym tenant run tenant.toml --listen unix:/run/heddle-news/sidecar
  heddle pseudonym tenant agent --identity tenant.pem --to unix:/run/heddle-news/sidecar --gateway-key sha256:...
  heddle pseudonym tenant agent --identity tenant.pem --to proxy:127.0.0.1:4443 --gateway-key sha256:...`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.FileUnderFlags(cmd, args, config.LoadPseudonymAgent, &a); err != nil {
				return err
			}
			if err := cli.UsageBy(cmd, a.Check()); err != nil {
				return err
			}
			return runAgent(cmd, a)
		},
	}, &a)
}

func runAgent(cmd *cobra.Command, f config.PseudonymAgent) error {
	key, err := loadTenantKey(f.Identity, false)
	if err != nil {
		return err
	}
	a := &gateway.Agent{Sidecar: f.Sidecar(), Server: f.Server(), Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))}
	if a.Identity, err = tenantCertificate(key); err != nil {
		return err
	}
	if a.Gateways, err = f.Gateways(); err != nil {
		return err
	}
	if a.Direct, err = f.DirectAddresses(); err != nil {
		return err
	}
	if err := tcprepair.Allowed(); err != nil {
		return err
	}
	l, err := runner.Listen(cmd.Context(), "listen", f.Listen, false)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "pseudonym: an agent is listening on %s for %s\n", l.Addr(), f.To)
	return runner.Run(cmd.Context(), runner.Options{Name: "agent", Taken: runner.AddNumber, Talk: cmd.ErrOrStderr()}, func(ctx context.Context, r *runner.Runner) error {
		r.Ready()
		return a.Serve(ctx, l)
	})
}

func newGatewayKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "gateway-key FILE",
		Short: "Print the key of a cloud's gateways",
		Long: `Gateway-key prints the key by which the agents of tenants know the gateways of a
cloud. All gateways have the same, as it follows from gateway.key.`,
		Example: "  heddle pseudonym gateway-key cloud.toml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, o, err := loadCloud(cmd, args[0])
			if err != nil {
				return err
			}
			key, err := cloud.GatewayIdentity(o)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), key)
			return err
		},
	}
}
