// Package split is `heddle split`: it splits the sessions of any UDP program over several paths.
package split

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/path"
	"heddle/split"
)

// Command is `heddle split`.
func Command() *cobra.Command {
	s := config.DefaultSplit(config.DefaultPaths())
	cmd := &cobra.Command{
		Use:   "split [--listen ADDR] --to HOST:PORT --via NAME=KIND:ARG...",
		Short: "Split any UDP program's sessions over several paths",
		Long: `Split listens for a UDP program and sends its datagrams to one server, each by
the path that the schedule names. Each client address is a session of its own.
The server must let a client change its address, as WireGuard, QUIC and Mosh do.

Each path's network sees some of the packets, and no network sees all of them.
Each network still sees that you talk to the server. An observer of all paths,
such as the server's own network, sees the whole session.

Heddle sends nothing while fewer paths than --min-paths are healthy. A relay
detects a dead path only by its silence. It tests a silent path with packets of
the session, each second. A server given by name is looked up by the machine's
resolver, and by the paths when it is lost; with --handshake-via by that path
alone.

With --backend kernel or route there is no relay: programs send to the server
itself, and this machine picks the path of each packet. Both need privileges;
heddle-doctor(1) shows what each backend can do. They split what goes to one
address. Where the server was given by name, nothing leaves to its others; the
name is looked up each minute, and once it leads elsewhere they end with an
error, and nothing leaves until they are started again.`,
		Example: `  heddle split --listen 127.0.0.1:51820 --to vpn.example.com:51820 --via home=if:eth0 --via lte=if:wwan0
  heddle split --listen 127.0.0.1:4433 --to 192.0.2.1:443 --via a=src:192.0.2.7 --via b=src:198.51.100.7 --every 50p
  heddle split --listen 127.0.0.1:4433 --to 192.0.2.1:443 --via home=if:eth0 --via lte=if:wwan0 --path office=wireguard:office.conf --handshake-via office
  sudo heddle split --backend kernel --to 192.0.2.1:51820 --via home=if:eth0 --via lte=if:wwan0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Run(cmd.Context(), s, cmd.ErrOrStderr())
		},
	}
	bind.Flags(cmd, &s)
	_ = cmd.MarkFlagRequired("to")
	_ = cmd.MarkFlagRequired("via")
	return cmd
}

// Run splits as one table or command line says, until ctx ends.
func Run(ctx context.Context, s config.Split, talk io.Writer) error {
	o, err := splitOptions(s)
	if err != nil {
		return cli.Usage(err)
	}
	return runner.Run(ctx, runner.Splitting(s.SessionName(), s.Capture, o), func(ctx context.Context, r *runner.Runner) error {
		o.Tap = r.Tap
		if err := runner.TellDead(talk, o); err != nil {
			return err
		}
		b, err := openBackend(ctx, s, o, r, talk)
		if err != nil {
			return err
		}
		r.Show(func() control.Status { return control.Status{Sessions: b.status()} })
		return errors.Join(b.run(ctx), b.close())
	})
}

func splitOptions(s config.Split) (split.Options, error) {
	o, err := s.Options()
	if err != nil {
		return split.Options{}, err
	}
	if err := s.Check(); err != nil {
		return split.Options{}, err
	}
	for _, name := range s.Backend {
		if err := o.CheckBackend(name); err != nil {
			return split.Options{}, err
		}
	}
	o.Session, o.To, o.Log = s.SessionName(), s.To, slog.Default()
	return o, nil
}

// listenAddress parses HOST:PORT, where HOST may be a name of this machine.
func listenAddress(text string) (netip.AddrPort, error) {
	a, err := net.ResolveUDPAddr("udp", text)
	if err != nil || a.IP == nil {
		return netip.AddrPort{}, &path.Error{What: fmt.Sprintf("listen %q", text), Why: "not an address and a port",
			Hint: "write 127.0.0.1:51820 or [::1]:51820", Err: err}
	}
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port()), nil
}
