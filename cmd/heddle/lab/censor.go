package lab

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/experiments/censor"
	"heddle/lab"
	"heddle/path"
)

func newCensorCommand() *cobra.Command {
	f := struct {
		bind.Printing
		SNI      []string      `flag:"sni" help:"cut off this server and those below it; one flag a <NAME>"`
		Residual time.Duration `flag:"residual" help:"how long a flow stays cut off"`
		Reset    bool          `flag:"reset" help:"reset TCP connections to these servers, rather than drop their packets only"`
		Attack   []string      `flag:"attack" help:"attack connections in this way; one flag a <NAME>"`
		Client   []string      `flag:"client" help:"look only at packets of this <ADDRESS>; one flag each"`
	}{Residual: 3 * time.Minute}
	return bind.Flags(inWorldFor(&cobra.Command{
		Use:   "censor HOST",
		Short: "Cut off servers by name, or attack connections, on a router",
		Long: `Put a censor on a router of a world, until interrupted or for as long as --for
says, and then print what it saw and dropped. It reads the server's name in the
ClientHellos of TLS over TCP, and of QUIC versions 1 and 2, whose first packets
it decrypts and puts together. A flow that named a server on the list, or one
below it, is cut off both ways for as long as --residual says.

With --attack it acts on TCP connections that begin while it runs:

` + attacks(),
		Example: `  heddle lab censor home-gw --sni blocked.example
  heddle lab censor lte-gw --sni blocked.example --sni other.example --reset --json --for 1m
  heddle lab censor isp --attack freeze --attack encrypted --client 10.101.1.2`,
		Args: cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, in *lab.Instance, args []string) error {
		options := censor.Options{Names: f.SNI, Residual: f.Residual, Reset: f.Reset, Attacks: f.Attack}
		what := slices.Concat(f.SNI, f.Attack)
		if len(what) == 0 {
			return cli.Usage(&path.Error{What: "lab censor", Why: "it has nothing to do", Hint: "--sni NAME, or --attack NAME"})
		}
		for _, client := range f.Client {
			addr, err := netip.ParseAddr(client)
			if err != nil {
				return cli.Usage(&path.Error{What: "--client", Why: fmt.Sprintf("%q is no address", client), Hint: "such as 10.101.1.2"})
			}
			options.Clients = append(options.Clients, addr)
		}
		host, err := in.LookupHost(args[0])
		if err != nil {
			return cli.Usage(err)
		}
		c, err := censor.Start(cmd.Context(), host, options)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s censors: %s\n", args[0], strings.Join(what, ", "))
		<-cmd.Context().Done()
		if err := c.Stop(); err != nil {
			return err
		}
		if f.JSON {
			return cli.WriteJSON(cmd.OutOrStdout(), c.Status())
		}
		return printCensor(cmd.OutOrStdout(), c.Status())
	}), &f)
}

// attacks describes them for the help.
func attacks() string {
	var lines []string
	for _, a := range censor.Attacks {
		lines = append(lines, fmt.Sprintf("  %-10s %s", a.Name, a.About))
	}
	return strings.Join(lines, "\n")
}

func printCensor(w io.Writer, s censor.Status) error {
	fmt.Fprintf(w, "%d packets, %d QUIC Initials, %d dropped, %d lost\n", s.Packets, s.Initials, s.Dropped, s.Lost)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(s.Names) > 0 {
		fmt.Fprintln(table, "NAME\tQUIC FLOWS\tTLS FLOWS\tDROPPED")
	}
	for _, n := range s.Names {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", n.Name, n.QUIC, n.TLS, n.Dropped)
	}
	if len(s.Attacks) > 0 {
		fmt.Fprintln(table, "ATTACK\tCONNECTIONS\tSEGMENTS\tDROPPED")
	}
	for _, a := range s.Attacks {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", a.Attack, a.Connections, a.Segments, a.Dropped)
	}
	return table.Flush()
}
