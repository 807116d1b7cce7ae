package board

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/board"
	"heddle/board/registry"
	"heddle/cmd/heddle/internal/cli"
	"heddle/internal/text"
)

func newDirectoryCommand(what string) *cobra.Command {
	var u boardUser
	var maxAge time.Duration
	cmd := &cobra.Command{
		Use:   what,
		Short: fmt.Sprintf("List the %s that are registered", what),
		Long: fmt.Sprintf(`List the %s that are registered on the board. Each is signed by its own
key; what is not is left out and counted.

Where the board cannot be reached, the list is that of the last time, with its
age, unless it is older than --max-age. Names are for people: where several keys
have one name, both are listed, and only a key says which is meant.`, what),
		Example: fmt.Sprintf("  heddle board %s\n  heddle board %s --max-age 1h --json", what, what),
		Args:    cobra.NoArgs,
	}
	u.addTo(cmd)
	cmd.Flags().DurationVar(&maxAge, "max-age", registry.DefaultMaxAge, "how old the list of the last time may be")
	cmd.RunE = u.with(func(cmd *cobra.Command, c *board.Client, _ []string) error {
		cache, err := registry.DefaultCache(c.Space, maxAge)
		if err != nil {
			return err
		}
		d, err := cache.Load(cmd.Context(), c)
		if err != nil {
			return err
		}
		SayOfDirectory(cmd.ErrOrStderr(), d)
		switch {
		case u.asJSON:
			answer := map[string]any{"nodes": d.Nodes, "ignored": d.Ignored, "read": d.Read, "cached": d.Cached}
			if what == "streams" {
				delete(answer, "nodes")
				answer["streams"] = d.Streams
			}
			return cli.WriteJSON(cmd.OutOrStdout(), answer)
		case what == "nodes":
			return printNodes(cmd.OutOrStdout(), d.Nodes)
		}
		return printStreams(cmd.OutOrStdout(), d.Streams)
	})
	return cmd
}

// SayOfDirectory tells what a person must know of a list before using it.
func SayOfDirectory(w io.Writer, d registry.Directory) {
	if d.Cached != "" {
		fmt.Fprintf(w, "board: this list is of %s (%s), since %s\n", ageOf(d.Read), d.Read.Local().Format(time.DateTime), d.Cached)
	}
	if d.Ignored > 0 {
		fmt.Fprintf(w, "board: %s left out, since the key that they name did not sign them, or they are not as they should be\n", text.Count(d.Ignored, "registration"))
	}
	for _, name := range d.Shared() {
		fmt.Fprintf(w, "board: several keys are registered as %s: give the key instead\n", name)
	}
}

func printNodes(w io.Writer, nodes []registry.Node) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tADDRESSES\tMODES\tASN\tUNTIL\tKEY")
	for _, n := range nodes {
		asn := "-"
		if n.ASN != 0 {
			asn = fmt.Sprint(n.ASN)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, strings.Join(n.Addresses, ","), strings.Join(n.Modes, ","), asn, n.Until.Local().Format(time.DateTime), n.Key)
	}
	return table.Flush()
}

func printStreams(w io.Writer, streams []registry.Stream) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tADDRESSES\tUNTIL\tKEY")
	for _, s := range streams {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.Name, strings.Join(s.Addresses, ","), s.Until.Local().Format(time.DateTime), s.Key)
	}
	return table.Flush()
}
