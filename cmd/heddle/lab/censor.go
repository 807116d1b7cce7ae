package lab

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/cli"
	"heddle/experiments/censor"
	"heddle/lab"
)

func newCensorCommand() *cobra.Command {
	var options censor.Options
	var asJSON bool
	cmd := inWorldFor(&cobra.Command{
		Use:   "censor HOST --sni NAME...",
		Short: "Cut off servers by name, on a router",
		Long: `Put a censor on a router of a world, until interrupted or for as long as --for
says, and then print what it saw and dropped. It reads the server's name in the
ClientHellos of TLS over TCP, and of QUIC versions 1 and 2, whose first packets
it decrypts and puts together. A flow that named a server on the list, or one
below it, is cut off both ways for as long as --residual says.`,
		Example: `  heddle lab censor home-gw --sni blocked.example
  heddle lab censor lte-gw --sni blocked.example --sni other.example --reset --json --for 1m`,
		Args: cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, in *lab.Instance, args []string) error {
		host, err := in.LookupHost(args[0])
		if err != nil {
			return cli.Usage(err)
		}
		c, err := censor.Start(cmd.Context(), host, options)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s cuts off %s\n", args[0], strings.Join(options.Names, ", "))
		<-cmd.Context().Done()
		if err := c.Stop(); err != nil {
			return err
		}
		if asJSON {
			return cli.WriteJSON(cmd.OutOrStdout(), c.Status())
		}
		return printCensor(cmd.OutOrStdout(), c.Status())
	})
	flags := cmd.Flags()
	flags.StringArrayVar(&options.Names, "sni", nil, "cut off this server and those below it; one flag a `NAME`")
	flags.DurationVar(&options.Residual, "residual", 3*time.Minute, "how long a flow stays cut off")
	flags.BoolVar(&options.Reset, "reset", false, "reset TCP connections, rather than drop their packets only")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	_ = cmd.MarkFlagRequired("sni")
	return cmd
}

func printCensor(w io.Writer, s censor.Status) error {
	fmt.Fprintf(w, "%d packets, %d QUIC Initials, %d dropped, %d lost\n", s.Packets, s.Initials, s.Dropped, s.Lost)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tQUIC FLOWS\tTLS FLOWS\tDROPPED")
	for _, n := range s.Names {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", n.Name, n.QUIC, n.TLS, n.Dropped)
	}
	return table.Flush()
}
