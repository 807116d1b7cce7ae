package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/experiments/readers"
)

func newReadersCommand() *cobra.Command {
	f := struct {
		JSON bool `flag:"json" help:"print what they say as JSON"`
	}{}
	return bind.Flags(&cobra.Command{
		Use:   "readers DIR...",
		Short: "Show how nDPI, tshark and p0f name the connections of captures",
		Long: `Have nDPI, tshark and p0f say what they take the connections in captures for.
Each directory with captures gives a row for each of these programs, such as the
directories that lab collect --captures makes, one for each way to load a page.

nDPI and tshark name each connection that begins in a capture and carried
something, and tshark counts frames that are malformed. p0f names systems by how
they open connections, and programs by their HTTP; "dishonest" is a program that
p0f does not believe. None of the three has a rule for Heddle, so this is what a
filter knows without one. A capture takes about a second.`,
		Example: `  heddle lab collect --over direct,tor,https --website dist/site-docs.db --sites nine.json --visits 1 --captures seen --out loads.parquet
  heddle lab readers seen/*`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			rows, err := readers.Read(cmd.Context(), cmd.ErrOrStderr(), dirs)
			if err != nil {
				return err
			}
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), rows)
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "CAPTURES\tREADER\tSAYS")
			for _, row := range rows {
				fmt.Fprintf(table, "%s\t%s\t%s\n", row.Captures, row.Reader, said(row.Says))
			}
			return table.Flush()
		},
	}, &f)
}

// said lists what a program says, the most frequent first.
func said(says map[string]int) string {
	names := slices.Sorted(maps.Keys(says))
	slices.SortStableFunc(names, func(a, b string) int { return says[b] - says[a] })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%d)", name, says[name])
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
