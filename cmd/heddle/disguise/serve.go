package disguise

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/disguise/bridge"
	"heddle/internal/text"
)

func newServeCommand() *cobra.Command {
	s := struct {
		config.DisguiseServe
		DryRun bool `flag:"dry-run" help:"say what would be served, and serve nothing"`
	}{DisguiseServe: config.DefaultDisguiseServe()}
	return bind.Flags(&cobra.Command{
		Use:   "serve [FILE]",
		Short: "Be a bridge, for those who have its line",
		Long: `Serve is a bridge until it is interrupted. FILE is a bridge.toml, whose keys
have the names of the flags. A flag overrides its key.

The bridge leads links to the target of --to, or with --destinations to those
that clients ask for: public addresses only, none of private networks and none
of its own, unless --allow says so. Of --allow and --deny the rule with the
longest prefix decides. It looks up names itself.

It answers only clients that have its bridge line, which heddle disguise keys
prints, and whose clock is at most 90 minutes off. It reads and drops what
others send, and ends their connections at an age that depends on nothing that
they send. With the covers http and https it is a website for them: a recorded
one, or with --origin your own. With --behind your own web server is in front of
it, and has the certificate and the connections of all visitors.

The bridge sees its clients' addresses, where they go, and what is not encrypted
inside. An observer of both its sides can find out who talks to whom. It logs
neither.`,
		Example: `  heddle disguise serve bridge.toml
  heddle disguise serve --to 127.0.0.1:22
  heddle disguise serve --destinations --listen :8443 --allow 10.0.0.0/8:22
  heddle disguise serve --destinations --cover https:site=site.db --behind 127.0.0.1:8081 --origin http://127.0.0.1:8080`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.FileUnderFlags(cmd, args, config.LoadDisguiseServe, &s.DisguiseServe); err != nil {
				return err
			}
			if err := cli.UsageBy(cmd, s.Check()); err != nil {
				return err
			}
			return runServe(cmd, s.DisguiseServe, s.DryRun)
		},
	}, &s)
}

func runServe(cmd *cobra.Command, s config.DisguiseServe, dryRun bool) error {
	stderr := cmd.ErrOrStderr()
	o, err := s.Options()
	if err != nil {
		return err
	}
	if dryRun {
		_, doors := s.Doors()
		own, err := apart(doors, slices.Sorted(maps.Keys(o.Apart)))
		if err != nil {
			return err
		}
		for _, at := range own {
			doors = append(doors, at.String())
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "would listen on %s, with the covers %s, and lead %s\n", strings.Join(doors, ", "), strings.Join(s.Cover, ", "), leads(s))
		return err
	}
	if err := o.Open(); err != nil {
		return err
	}
	defer o.Replays.Close()
	o.Log = slog.New(slog.NewTextHandler(stderr, nil))
	b, err := bridge.New(o.Options)
	if err != nil {
		return err
	}
	listeners, err := listen(cmd.Context(), s, b, o)
	if err != nil {
		return err
	}
	var at []string
	for _, l := range listeners {
		one := l.Addr().String()
		if l.Addr().Network() == "udp" {
			one += "/udp"
		}
		at = append(at, one)
	}
	fmt.Fprintf(stderr, "disguise: listening on %s, leading %s\n", strings.Join(at, ", "), leads(s))
	_, port, _ := net.SplitHostPort(listeners[0].Addr().String())
	status := func() control.Status {
		st := b.Status()
		st.Listen = at
		return control.Status{Bridge: &st}
	}
	err = runner.Run(cmd.Context(), runner.Options{Name: "bridge-" + cmp.Or(port, "behind"), Taken: runner.GoUnseen, Talk: stderr}, func(ctx context.Context, r *runner.Runner) error {
		r.Show(status)
		r.Ready()
		return b.Serve(ctx, listeners...)
	})
	st := b.Status()
	fmt.Fprintf(stderr, "disguise: %s, %s\n", text.Count(st.LinksEver, "link"), text.Count(st.Streams, "stream"))
	return err
}

// listen opens the bridge's doors: for TCP and for UDP, as the covers need.
func listen(ctx context.Context, s config.DisguiseServe, b *bridge.Bridge, o config.Bridge) (listeners []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, open := range listeners {
				open.Close()
			}
		}
	}()
	flag, all := s.Doors()
	for _, at := range all {
		if len(o.Covers) > 0 {
			l, err := runner.Listen(ctx, flag, at, false)
			if err != nil {
				return listeners, err
			}
			listeners = append(listeners, l)
			at = l.Addr().String() // with the port, if it was 0
		}
		if len(o.DatagramCovers) > 0 {
			socket, err := runner.ListenUDP(flag, at)
			if err != nil {
				return listeners, err
			}
			listeners = append(listeners, b.Packets(socket))
		}
	}
	own, err := apart(all, slices.Sorted(maps.Keys(o.Apart)))
	if err != nil {
		return listeners, err
	}
	for _, at := range own {
		l, err := runner.Listen(ctx, flag, at.String(), false)
		if err != nil {
			return listeners, err
		}
		listeners = append(listeners, l)
		if listeners[len(listeners)-1], err = b.Apart(l, o.Apart[at.port]); err != nil {
			l.Close()
			return listeners[:len(listeners)-1], err
		}
	}
	return listeners, nil
}

// ownPort is where covers are that have a port of their own.
type ownPort struct {
	host string
	port uint16
}

func (o ownPort) String() string { return net.JoinHostPort(o.host, strconv.Itoa(int(o.port))) }

// apart returns each port once for each host at which the bridge listens.
func apart(doors []string, ports []uint16) (all []ownPort, err error) {
	if len(ports) == 0 {
		return nil, nil // doors behind a web server may be files
	}
	for _, at := range doors {
		host, _, err := net.SplitHostPort(at)
		if err != nil {
			return nil, err
		}
		for _, port := range ports {
			if own := (ownPort{host, port}); !slices.Contains(all, own) {
				all = append(all, own)
			}
		}
	}
	return all, nil
}

// leads says where a bridge leads.
func leads(s config.DisguiseServe) string {
	var where []string
	if s.To != "" {
		where = append(where, "to "+s.To)
	}
	if s.Destinations {
		where = append(where, "to destinations that clients ask for")
	}
	return strings.Join(where, ", and ")
}
