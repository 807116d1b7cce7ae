// Package doctor is `heddle doctor`. It tests what this machine can do for Heddle: it opens sockets, sends to loopback,
// and reads the routing tables. It makes changes only in a network namespace of its own. Its results are for people:
// sessions must not rely on them, since they can change at any time.
package doctor

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/checks"
	"heddle/cmd/heddle/internal/cli"
)

// Command is `heddle doctor`.
func Command() *cobra.Command {
	var f bind.Printing
	return bind.Flags(&cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can do, and what to do about the rest",
		Long: `Doctor looks at this machine: its interfaces with their default routes in all
routing tables, whether what is bound to an interface leaves by it, UDP
offloads, TUN, capabilities, nftables, BPF, Multipath TCP, the resolver and the
clock. Each line says yes, partly, no or unknown, and what to do where it is not
yes.

It finds out by trying. It changes nothing, and sends nothing beyond loopback.
That an interface has a route does not say that the network behind it works.`,
		Example: `  heddle doctor
  sudo heddle doctor
  heddle doctor --json | jq '.checks[] | select(.verdict != "yes")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := Examine()
			if err != nil {
				return err
			}
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), report)
			}
			return printReport(cmd.OutOrStdout(), report, cli.TerminalWidth(cmd.OutOrStdout()))
		},
	}, &f)
}

// printReport prints the findings in lines of at most width columns; 0 is no limit.
func printReport(w io.Writer, report Report, width int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Linux %s\n\nInterfaces\n", report.Kernel)
	for _, i := range report.Interfaces {
		interfaceText(&b, i)
	}
	b.WriteString("\nMachine\n")
	if err := checks.Text(&b, report.Checks); err != nil {
		return err
	}
	b.WriteString("\nBackends: what each way to split can do, and whether you can run it here now\n")
	if err := backendTable(&b, report.Backends); err != nil {
		return err
	}
	for _, p := range report.Backends {
		if p.Here != Yes {
			fmt.Fprintf(&b, "  %s: %s\n", p.Name, p.Hint)
		}
	}
	b.WriteString(legend)
	_, err := io.WriteString(w, cli.Folded(b.String(), width))
	return err
}

// legend explains the columns of the backends.
const legend = `  BOUND SOCKETS: it also splits what programs send that chose their own address or peer.
  PACKET COUNTS: the path may change after a number of packets, as in --every 50p; "roughly" where programs hand several
  packets to the kernel at once. RULES: some packets may be sent by a path of your choice.
`

func backendTable(b *strings.Builder, backends []Backend) error {
	word := map[bool]string{true: "yes", false: "no"}
	const header = "  BACKEND\tHERE\tPROGRAMS SEND TO\tBOUND SOCKETS\tPACKET COUNTS\tRULES\tPATHS\tNEEDS"
	return cli.Table(b, header, backends, func(p Backend) []any {
		counts, kinds := word[p.Packets], "all"
		if p.Packets && !p.GSO {
			counts = "roughly"
		}
		if p.Kinds != nil {
			kinds = strings.Join(p.Kinds, ", ")
		}
		return []any{"  " + p.Name, p.Here, p.To, word[p.Bound], counts, word[p.Rules], kinds, cmp.Or(p.Needs, "nothing")}
	})
}

func interfaceText(b *strings.Builder, i Interface) {
	state := "up"
	if !i.Up {
		state = "down"
	}
	fmt.Fprintf(b, "  %s: %s, MTU %d", i.Name, state, i.MTU)
	if len(i.Addresses) > 0 {
		fmt.Fprintf(b, ", %s", strings.Join(i.Addresses, " "))
	}
	b.WriteString("\n")
	if !i.Up {
		return
	}
	for _, r := range i.Defaults {
		fmt.Fprintf(b, "    default route %s", r.Family)
		if r.Via != "" {
			fmt.Fprintf(b, " via %s", r.Via)
		}
		fmt.Fprintf(b, ", metric %d, table %s\n", r.Metric, tableName(r.Table))
	}
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	checks.Row(table, "  IPv4", i.IPv4)
	checks.Row(table, "  IPv6", i.IPv6)
	table.Flush()
}

// tableName returns the name of a table that rt_tables(5) defines on every machine.
func tableName(id int) string {
	switch id {
	case 253:
		return "default"
	case 254:
		return "main"
	case 255:
		return "local"
	}
	return fmt.Sprint(id)
}
