package lab

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/experiments/tenants"
	"heddle/path"
)

func newTenantsCommand() *cobra.Command {
	f := struct {
		Ways       []string `flag:"way" help:"how clients come: some <WAYS> of direct, proxy, fdpass, handoff, handoff6, nft, ovs, v6" complete:"direct proxy fdpass handoff handoff6 nft ovs v6" list:"commas"`
		Tenants    []string `flag:"tenant" help:"only these <TENANTS>" list:"commas"`
		Pseudonyms int      `flag:"pseudonyms" help:"how many each tenant has"`
		Visits     int      `flag:"visits" help:"how many are made by each pseudonym"`
		Seed       uint64   `flag:"seed" help:"makes the order of visits repeatable"`
		Out        string   `flag:"out" help:"write what was seen of each connection to this <FILE>, for heddle-eval tenants" complete:"file"`
		Captures   string   `flag:"captures" help:"keep the captures in this <DIR>" complete:"dir"`
		JSON       bool     `flag:"json" help:"print the tables as JSON"`
	}{Ways: tenants.Ways(), Tenants: tenants.Names(), Pseudonyms: 5, Visits: 10, Seed: 1}
	return bind.Flags(&cobra.Command{
		Use:   "tenants",
		Short: "Show by what an observer could tell the tenants of a cloud apart",
		Long: `Record what an observer between a client and a cloud reads of connections to
tenants that all serve the same page, and show by what it could tell them apart:
headers of IP and TCP, sizes of messages of TLS, and how connections end.

Each of the ten tenants has a machine of its own. Behind their sidecars are
nginx, Apache, Node.js, Python, PHP and Go; one has nginx in the sidecar's place
(inplace) and one HAProxy before it (haproxy). One machine has a kernel with
other settings (kernel), and one a link and a route with others (link). Clients
come without a gateway (direct), by one that relays (proxy) or hands connections
over (handoff, by IPv6 handoff6, with other switches nft and ovs), or by
pseudo-addresses (v6). With fdpass all sidecars are on the gateway's machine,
also of those tenants that otherwise have something else in place of one or
before one. The visits of a way are in an order that is drawn.

The first table has what tells tenants apart for sure: two have no value of it
in common. The second has what p0f says of each. --out writes all that was read,
also times, for the classifier of "heddle-eval tenants". Needs root, nginx,
apache2-bin, nodejs, php-cli, python3, haproxy, curl, tshark and p0f, and for
ovs openvswitch-switch.`,
		Example: `  heddle lab tenants --out seen.jsonl
  heddle lab tenants --way handoff --tenant nginx,kernel,link --visits 3`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			heddle, err := os.Executable()
			if err != nil {
				return err
			}
			all, says, err := tenants.Run(cmd.Context(), tenants.Options{Heddle: heddle, Ways: f.Ways, Tenants: f.Tenants, Pseudonyms: f.Pseudonyms, Visits: f.Visits,
				Seed: f.Seed, Captures: f.Captures, Talk: cmd.ErrOrStderr()})
			if err != nil {
				return err
			}
			if f.Out != "" {
				if err := writeFile(f.Out, func(w io.Writer) error { return tenants.Write(w, all) }); err != nil {
					return &path.Error{What: "--out " + f.Out, Err: err}
				}
			}
			told := tenants.Tell(all)
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), struct {
					Connections int               `json:"connections"`
					Told        []tenants.Telling `json:"told"`
					P0F         []tenants.Says    `json:"p0f"`
				}{len(all), told, says})
			}
			return printTenants(cmd.OutOrStdout(), f.Ways, told, says)
		},
	}, &f)
}

func printTenants(out io.Writer, ways []string, told []tenants.Telling, says []tenants.Says) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WAY\tTOLD BY\tVALUES")
	for _, way := range ways {
		before := 0
		for _, t := range told {
			if t.Way != way {
				continue
			}
			before++
			var values []string
			for _, v := range slices.Sorted(maps.Keys(t.Values)) {
				values = append(values, fmt.Sprintf("%s: %s", strings.Join(t.Values[v], ", "), v))
			}
			fmt.Fprintf(table, "%s\t%s\t%s\n", way, t.Name, strings.Join(values, "; "))
		}
		if before == 0 {
			fmt.Fprintf(table, "%s\tnothing\t\n", way)
		}
	}
	fmt.Fprintln(table, "\nWAY\tTENANT\tP0F SAYS")
	for _, s := range says {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Way, s.Tenant, said(s.Says))
	}
	return table.Flush()
}
