package node

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/identity"
	"heddle/internal/text"
	"heddle/overlay/client"
	"heddle/overlay/node"
)

// patienceStatus bounds how long a node may take to answer.
const patienceStatus = 15 * time.Second

func newStatusCommand() *cobra.Command {
	f := struct {
		bind.Printing
		Address  string `flag:"address" help:"without NODE, where this machine's node listens, <HOST:PORT>"`
		Identity string `flag:"identity" help:"the <FILE> of this device's private key"`
	}{Address: fmt.Sprintf("127.0.0.1:%d", node.DefaultPort)}
	return bind.Flags(&cobra.Command{
		Use:   "status [NODE]",
		Short: "Ask a node what is left of a grant, or how it does",
		Long: `Status asks a node that this device has a pass for. A holder sees the own
grant: until when, and how many bytes are used. A grantor of the node sees all
grants that are in use, and what the node refused. NODE is the name of a pass,
or a file.

Without NODE it asks the node of this very identity, on the machine where that
runs, and shows all.`,
		Example: "  heddle node status tokyo\n  heddle node status ./tokyo.json --json\n  heddle node status --address 127.0.0.1:7443",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := askStatus(cmd.Context(), args, f.Address, f.Identity)
			if err != nil {
				return err
			}
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), s)
			}
			return printNodeStatus(cmd.OutOrStdout(), s, time.Now())
		},
	}, &f)
}

func askStatus(ctx context.Context, args []string, address, identityFile string) (client.Status, error) {
	id, err := identity.LoadOr(identityFile)
	if err != nil {
		return client.Status{}, err
	}
	pass := client.Pass{Name: "here", Key: id.Key(), Addresses: []string{address}}
	if len(args) == 1 {
		pass, err = client.LoadPass(args[0])
	} else {
		err = pass.Check()
	}
	if err != nil {
		return client.Status{}, err
	}
	asker, err := client.New(pass, id, nil)
	if err != nil {
		return client.Status{}, err
	}
	defer asker.Close()
	ctx, cancel := context.WithTimeout(ctx, patienceStatus)
	defer cancel()
	return asker.Status(ctx)
}

func printNodeStatus(w io.Writer, s client.Status, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "node\t%s\nkey\t%v\nup for\t%v\noffers\t%s\n", s.Name, s.Key, s.Now.Sub(s.Since).Round(time.Second), strings.Join(s.Modes, ", "))
	if skew := s.Now.Sub(now); skew.Abs() > time.Minute {
		fmt.Fprintf(table, "clock\t%v away from this device's\n", skew.Round(time.Second))
	}
	if s.Listen != "" {
		fmt.Fprintf(table, "listens on\t%s\nopen\t%s, %s\nin all\t%s; %d bytes up, %d down\n", s.Listen, text.Count(s.FlowsOpen, "flow"),
			text.Count(s.Strangers, "connection")+" without one", text.Count(int(s.Flows), "flow"), s.Up, s.Down)
	}
	for _, reason := range client.Reasons() {
		if n := s.Refused[reason]; n > 0 {
			fmt.Fprintf(table, "refused\t%d: %s\n", n, reason)
		}
	}
	if len(s.Grants) > 0 {
		fmt.Fprintln(table, "\nGRANT\tHOLDER\tUNTIL\tUSED\tOF\tOPEN\tFOR")
	}
	for _, g := range s.Grants {
		limit := "no limit"
		if g.Bytes > 0 {
			limit = fmt.Sprint(g.Bytes)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%d\t%s\n", g.ID, g.Holder.Short(), untilText(g.Until), g.Used, limit, g.Flows, strings.Join(g.Modes, ", "))
	}
	return table.Flush()
}

func untilText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}
