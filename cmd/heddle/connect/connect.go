// Package connect is `heddle connect`: it connects stdin and stdout to a TCP address over one path.
package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/config"
	"heddle/internal/dial"
	"heddle/internal/netutil"
	"heddle/path"
	"heddle/split"
)

// Command is `heddle connect`.
func Command() *cobra.Command {
	p := config.DefaultPaths()
	var f struct {
		Via      string `flag:"via" help:"the path, <NAME=KIND:ARG>, such as home=if:eth0" complete:"path"`
		Announce bool   `flag:"announce" help:"print \"MOSH IP\" and the address on stderr once connected, as mosh's own proxy does"`
	}
	cmd := &cobra.Command{
		Use:   "connect HOST PORT --via NAME=KIND:ARG",
		Short: "Join stdin and stdout to a TCP connection over one path",
		Long: `Connect makes a TCP connection over one path only, and copies between it and
stdin and stdout until the other side closes it. Use it as ssh's ProxyCommand.

This machine's resolver looks a name up, not the path. Connect tries IPv4
addresses first.

The networks of your other paths do not see the connection. The network of this
path sees all of it.`,
		Example: `  ssh -o ProxyCommand="heddle connect --via lte=if:wwan0 %h %p" user@server.example
  heddle connect --via home=src:192.0.2.7 server.example 22`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Via, p.Needs = []string{f.Via}, path.Streams
			o, err := p.Options()
			if err != nil {
				return cli.Usage(err)
			}
			way, err := DialerOf(o, o.Via[0].Name)
			if err != nil {
				return cli.Usage(err)
			}
			port, err := strconv.ParseUint(args[1], 10, 16)
			if err != nil || port == 0 {
				return cli.Usage(&path.Error{What: fmt.Sprintf("port %q", args[1]), Why: "it is no number from 1 to 65535",
					Hint: "ssh listens on 22 unless somebody changed that"})
			}
			conn, at, err := dialAny(cmd.Context(), way, args[0], uint16(port))
			if err != nil {
				return err
			}
			if f.Announce {
				fmt.Fprintln(cmd.ErrOrStderr(), "MOSH IP", at)
			}
			return joinStreams(cmd.Context(), conn, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	bind.Flags(cmd, &f)
	bind.Flags(cmd, &p, "path", "secret", "identity")
	cmd.Flags().Lookup("path").Usage = "another path, `NAME=KIND:ARG`, for a tunnel to ride"
	_ = cmd.MarkFlagRequired("via")
	return cmd
}

// DialerOf returns the path with a name, if it carries TCP.
func DialerOf(o split.Options, name string) (path.Path, error) {
	ways, err := o.Paths()
	if err != nil {
		return nil, err
	}
	way, ok := ways[name]
	if !ok {
		var names []string
		for _, s := range slices.Concat(o.Via, o.Beside) {
			names = append(names, s.Name)
		}
		return nil, &path.Error{What: "path " + name, Why: "no path is called that", Hint: "paths: " + strings.Join(names, ", ")}
	}
	return way, path.Need(way, path.Streams, "TCP")
}

// dialTimeout bounds the dial of each address of a name.
const dialTimeout = 15 * time.Second

// dialAny connects to the first address of a host that answers, IPv4 first like mosh.
func dialAny(ctx context.Context, way path.Path, host string, port uint16) (net.Conn, netip.Addr, error) {
	what := "connect to " + net.JoinHostPort(host, strconv.Itoa(int(port)))
	addrs, err := dial.Lookup(ctx, host)
	if err != nil {
		return nil, netip.Addr{}, &path.Error{What: what, Why: "the name cannot be looked up", Err: err,
			Hint: "is it spelled right, and does this machine's resolver answer?"}
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	var reasons []string
	hint := "does the server listen there, and does this path reach it? `heddle doctor` looks at this machine's paths"
	for _, a := range addrs {
		attempt, cancel := context.WithTimeout(ctx, dialTimeout)
		conn, err := path.Dial(attempt, way, path.At(netip.AddrPortFrom(a, port)))
		cancel()
		if err == nil {
			return conn, a, nil
		}
		if ctx.Err() != nil {
			return nil, netip.Addr{}, ctx.Err()
		}
		reasons = append(reasons, err.Error())
		if known, ok := errors.AsType[*path.Error](err); ok && known.Hint != "" {
			hint = known.Hint // a tunnel has a better hint
		}
	}
	return nil, netip.Addr{}, &path.Error{What: what, Why: strings.Join(reasons, "; "), Hint: hint}
}

// joinStreams copies bytes both ways until the connection's other side ends, or ctx.
func joinStreams(ctx context.Context, conn net.Conn, in io.Reader, out io.Writer) error {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	go netutil.Pour(conn, in)
	_, err := netutil.Pour(out, conn)
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
