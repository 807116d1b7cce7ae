// Package up is `heddle up`: a WireGuard tunnel over several paths.
package up

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/path"
	"heddle/path/wgconf"
	"heddle/split"
	"heddle/split/tunnel"
)

// Command is `heddle up`.
func Command() *cobra.Command {
	f := struct {
		config.Up
		DryRun     bool `flag:"dry-run" help:"print what would be changed, and change nothing"`
		Background bool `flag:"background" help:"return once the tunnel is up, and leave it running"`
	}{Up: config.DefaultUp(config.DefaultPaths())}
	cmd := &cobra.Command{
		Use:   "up FILE --via NAME=KIND:ARG...",
		Short: "Bring up a WireGuard tunnel over several paths",
		Long: `Up takes a wg-quick file as it is, and an unmodified server, and sends the
tunnel's packets over several paths, each packet by the path that the schedule
names. FILE is a path, or a bare name: office stands for ./office.conf, else
/etc/wireguard/office.conf.

As root it makes a TUN device with addresses, routes, DNS and commands as
wg-quick does. While a full tunnel is up, a kill switch keeps all else from
leaving, also after a crash. A tunnel for a part of the addresses has a guard:
packets to AllowedIPs leave by the tunnel or not at all, before it is up and
after a crash too. Narrower routes of this machine still hold if they exist when
up starts. ` + "`heddle down`" + ` lifts both. With --socks it needs no rights: the
tunnel is a SOCKS5 (TCP and UDP) and HTTP CONNECT proxy, which resolves names
inside the tunnel.

Nothing leaves before enough paths have proved that the server answers on them.
Heddle sends nothing while fewer paths than --min-paths are healthy.

Each path's network sees some of the packets, and no network sees all of them.
Each network still sees that you use a tunnel, and the server's address. An
observer of all paths, such as the server's own network, sees the whole session.
If the file has the server's name instead of its address, up asks for it over
the paths, one after the other, if the kill switch is up, which is set first.
Else it asks the machine's resolver, outside the tunnel. If the server is lost,
up asks again over the paths. The networks that it asks over see the name. Under
a kill switch, a path to a proxy, node or endpoint by name asks for that name
itself, over the path under it.`,
		Example: `  heddle up office.conf --via home=if:eth0 --via lte=if:wwan0
  heddle up office --via home=if:eth0 --via lte=if:wwan0 --schedule weighted --every 100ms --background
  heddle up office.conf --via a=src:192.0.2.7 --via b=src:198.51.100.7 --socks 127.0.0.1:1080
  heddle up office.conf --via home=if:eth0 --dry-run`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := wgconf.Find(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			f.File = file
			switch {
			case f.DryRun && f.Background:
				return cli.Usage(&path.Error{What: "--dry-run and --background", Why: "one changes nothing, the other leaves it changed",
					Hint: "give one of them"})
			case f.DryRun:
				return dryRunUp(f.Up, cmd.OutOrStdout(), cmd.ErrOrStderr())
			case f.Background:
				return startBackground(cmd.Context(), f.SessionName(), cmd.OutOrStdout())
			}
			return Run(cmd.Context(), f.Up, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	bind.Flags(cmd, &f)
	_ = cmd.MarkFlagRequired("via")
	return cmd
}

// tunnelOptions reads the file and the paths.
func tunnelOptions(u config.Up) (tunnel.Options, error) {
	shared, err := u.Options()
	if err != nil {
		return tunnel.Options{}, err
	}
	if err := u.Check(); err != nil {
		return tunnel.Options{}, err
	}
	c, err := wgconf.Load(u.File)
	if err != nil {
		return tunnel.Options{}, err
	}
	return tunnel.Options{Name: u.SessionName(), Config: c, Split: shared, Userspace: u.Socks != "", KillSwitch: u.KillSwitch,
		Hooks: !u.NoHooks, MTU: u.MTU, Dir: control.Dir(), Log: slog.Default()}, nil
}

func dryRunUp(u config.Up, out, talk io.Writer) error {
	o, err := tunnelOptions(u)
	if err != nil {
		return cli.Usage(err)
	}
	t, err := tunnel.New(o)
	if err != nil {
		return err
	}
	for _, w := range t.Warnings() {
		fmt.Fprintln(talk, "warning:", w)
	}
	if err := runner.TellDead(talk, o.Split); err != nil {
		return err
	}
	printClaim(out, t, o)
	changes := t.Changes()
	if o.Userspace {
		changes = []string{"listen on " + u.Socks + " (nothing else is changed on this machine)"}
	}
	for _, c := range changes {
		fmt.Fprintln(out, c)
	}
	return nil
}

// Run runs a tunnel until ctx ends or a stop request. It prints the claim, and a line once the tunnel is up, to out,
// and progress to talk.
func Run(ctx context.Context, u config.Up, out, talk io.Writer) error {
	saveMemory()
	o, err := tunnelOptions(u)
	if err != nil {
		return cli.Usage(err)
	}
	return runner.Run(ctx, runner.Splitting(o.Name, u.Capture, o.Split), func(ctx context.Context, r *runner.Runner) error {
		if err := cleanLeft(o, talk); err != nil {
			return err
		}
		o.Split.Tap = r.Tap
		t, err := tunnel.New(o)
		if err != nil {
			return err
		}
		r.Show(func() control.Status { return control.Status{Sessions: []split.Status{t.Status()}} })
		for _, w := range slices.Concat(o.Config.Warnings, t.Warnings()) {
			fmt.Fprintln(talk, "warning:", w)
		}
		if t.KillSwitch() && os.Getenv("SSH_CONNECTION") != "" {
			fmt.Fprintln(talk, "warning: the kill switch will cut this SSH session off unless it comes through the tunnel; --kill-switch=false leaves it alone")
		}
		return keepUp(ctx, t, u, o, r, out, talk)
	})
}

// keepUp runs a tunnel from its first packet to its cleanup. It prints the claim once the claim holds.
func keepUp(ctx context.Context, t *tunnel.Tunnel, u config.Up, o tunnel.Options, r *runner.Runner, out, talk io.Writer) error {
	tell := func(text string) { fmt.Fprintf(talk, "%s: %s\n", u.SessionName(), text) }
	var proxy *front
	if u.Socks != "" {
		who, err := u.SocksUsers.Load()
		if err != nil {
			return err
		}
		if proxy, err = listenFront(ctx, u.Socks, who, talk); err != nil {
			return err
		}
		defer proxy.close()
	}
	if err := t.Up(ctx, func() { printClaim(out, t, o) }, once(tell)); err != nil {
		if ctx.Err() != nil { // stopped before it was up
			return t.Close()
		}
		return err
	}
	where := "device " + u.SessionName()
	if proxy != nil {
		proxy.serve(ctx, t, o.Config)
		where = "SOCKS5 and HTTP CONNECT on " + proxy.listener.Addr().String()
	}
	fmt.Fprintln(out, upLine(t, where))
	r.Ready()
	leaveParent()
	if err := t.Wait(ctx); err != nil {
		return err
	}
	if proxy != nil {
		proxy.close()
	}
	return t.Close()
}

// once passes a line on only if it differs from the last.
func once(tell func(string)) func(string) {
	last := ""
	return func(text string) {
		if text != last {
			last = text
			tell(text)
		}
	}
}

func upLine(t *tunnel.Tunnel, where string) string {
	s := t.Status()
	healthy := 0
	for _, p := range s.Paths {
		if p.State == string(path.Up) {
			healthy++
		}
	}
	return fmt.Sprintf("%s is up: %s to %s over %d of %d paths, %s every %s, MTU %d", s.Session, where, s.Server, healthy, len(s.Paths), s.Schedule, s.Every, t.MTU())
}

// printClaim prints what the tunnel hides and what not.
func printClaim(out io.Writer, t *tunnel.Tunnel, o tunnel.Options) {
	fmt.Fprintln(out, "claim:", t.Status().Claim)
	if host, named := serverName(o.Config.Peer.Endpoint); named && t.KillSwitch() {
		fmt.Fprintf(out, "claim: the name %s is asked of this machine's nameservers over the paths, outside the tunnel; their networks and the nameservers see the name\n", host)
	} else if named {
		fmt.Fprintf(out, "claim: the name %s is asked of this machine's resolver, outside the tunnel and over its default route; and again, by the paths, when the server is lost\n", host)
	}
	if t.KillSwitch() {
		claimNames(out, o.Split)
	}
	switch {
	case o.Userspace:
		fmt.Fprintln(out, "claim: only programs that use the proxy are in the tunnel")
	case t.Guarded() && !t.KillSwitch():
		fmt.Fprintln(out, "claim: only the file's AllowedIPs go into the tunnel; all else leaves as before")
		fmt.Fprintln(out, "claim: packets to AllowedIPs leave by the tunnel or not at all, also after a crash, until `heddle down`")
		for _, p := range t.Beside() {
			fmt.Fprintf(out, "claim: packets to %s leave as before, outside the tunnel: this machine has a narrower route for them\n", p)
		}
	case t.KillSwitch():
		fmt.Fprintln(out, "claim: all else is kept from leaving, the local network too, until `heddle down`")
	default:
		if !o.Config.FullTunnel() {
			fmt.Fprintln(out, "claim: only the file's AllowedIPs go into the tunnel; all else leaves as before")
		}
		fmt.Fprintln(out, "claim: without a kill switch, what does not go into the tunnel leaves as before, also after a crash")
	}
}

// claimNames says who sees the names of the servers that paths lead through, under a kill switch.
func claimNames(out io.Writer, o split.Options) {
	ways, err := o.Paths()
	if err != nil {
		return // the tunnel made the same ones
	}
	for _, s := range slices.Concat(o.Via, o.Beside) {
		if host, named := serverName(ways[s.Name].Describe().Endpoint); named {
			fmt.Fprintf(out, "claim: the name %s, of path %s, is asked of this machine's nameservers over %s, outside the tunnel; the network there and the nameservers see the name\n",
				host, s.Name, cmp.Or(s.Base, "this machine's own routes"))
		}
	}
}

// serverName returns the host of an endpoint, and whether it is a name to look up.
func serverName(endpoint string) (string, bool) {
	if _, err := netip.ParseAddrPort(endpoint); err == nil || endpoint == "" {
		return "", false
	}
	return endpoint[:strings.LastIndexByte(endpoint, ':')], true
}

// cleanLeft removes what a crash left. The guard stays up meanwhile.
func cleanLeft(o tunnel.Options, talk io.Writer) error {
	lines, err := tunnel.Clean(o.Dir, o.Name, !o.Userspace)
	for _, line := range lines {
		fmt.Fprintf(talk, "%s: a crash left this, taken back: %s\n", o.Name, line)
	}
	return err
}

// saveMemory makes the garbage collector run early, unless the user has configured it. wireguard-go's buffers are large
// and short-lived: collecting is cheap, and otherwise they pile up at full speed. The limit excludes the
// program's own pages, some 32 MB.
func saveMemory() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(50)
		debug.SetMemoryLimit(48 << 20)
	}
}
