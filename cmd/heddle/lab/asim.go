package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/experiments/asim"
	"heddle/path"
)

// labASim holds the flags of heddle lab asim.
type labASim struct {
	reportFlags
	Graph      string   `flag:"graph" help:"the <FILE> of AS relationships" complete:"file"`
	Seed       uint64   `flag:"seed" help:"what nodes and clients are drawn by"`
	Sets       int      `flag:"sets" help:"how many sets of nodes are drawn"`
	Clients    int      `flag:"clients" help:"how many clients, each with a server, for each set"`
	Candidates []int    `flag:"candidates" help:"from how many nodes to choose, <NUMBERS>"`
	Workers    int      `flag:"workers" help:"how many work at once; 0 for one a core"`
	Quick      bool     `flag:"quick" help:"fewer clients and candidates, in some seconds"`
	AllPairs   bool     `flag:"all-pairs" help:"the routes between all ASes instead"`
	Tables     bool     `flag:"tables" help:"the pairs of MACHETE's tables I and II instead"`
	Places     []string `flag:"place" help:"with --tables: where a place is, <NAME=AS>"`
}

func newASimCommand() *cobra.Command {
	o := asim.Defaults()
	a := labASim{Seed: o.Seed, Sets: o.Sets, Clients: o.Clients, Candidates: o.Candidates}
	cmd := &cobra.Command{
		Use:   "asim --graph FILE",
		Short: "Simulate how diverse paths are on a graph of the Internet's ASes",
		Long: `Simulate which networks (ASes) see the paths through an overlay, on a graph of
the Internet's ASes. Routes are those that providers, customers and peers would
choose (Gao and Rexford): a customer's before a peer's before a provider's, then
the shortest, then by the lowest AS. Nodes, clients and servers are drawn from
all ASes alike; a client is a device in one network (single), in two (dual), or
in a network with several providers (multihomed). For each number of candidate
nodes it tells how many ASes see both paths of a pair that is drawn, of the best
pair, and of drawn and best triples, chosen as "heddle overlay choose" does.

--graph names a file of CAIDA's serial-1 format, PROVIDER|CUSTOMER|-1 and
PEER|PEER|0, also packed by gzip. --tables computes the pairs of MACHETE's
tables I and II instead, and --all-pairs the routes between all ASes. Needs no
root.`,
		Example: `  heddle lab asim --graph as-rel.txt.gz --quick
  heddle lab asim --graph as-rel.txt.gz --json asim.json --plot asim.svg
  heddle lab asim --graph as-rel.txt.gz --tables --place Tokyo=AS4713`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.Quick {
				a.useQuick(cmd)
			}
			return a.run(cmd)
		},
	}
	bind.Flags(cmd, &a)
	_ = cmd.MarkFlagRequired("graph")
	cmd.MarkFlagsMutuallyExclusive("all-pairs", "tables", "plot")
	return cmd
}

// useQuick sets the quick values of flags that are not given.
func (a *labASim) useQuick(cmd *cobra.Command) {
	quick := asim.Quick()
	for name, set := range map[string]func(){
		"sets":       func() { a.Sets = quick.Sets },
		"clients":    func() { a.Clients = quick.Clients },
		"candidates": func() { a.Candidates = quick.Candidates },
	} {
		if !cmd.Flags().Changed(name) {
			set()
		}
	}
}

func (a *labASim) run(cmd *cobra.Command) error {
	if err := checkPlot(a.Plot); err != nil {
		return err
	}
	if a.Workers < 0 {
		return cli.Usage(&path.Error{What: fmt.Sprintf("--workers %d", a.Workers), Why: "it is less than 0", Hint: "leave it out for one a core"})
	}
	if len(a.Places) > 0 && !a.Tables {
		return cli.Usage(&path.Error{What: "--place", Why: "only the tables have places", Hint: "add --tables"})
	}
	places, err := asim.ParsePlaces(a.Places)
	if err != nil {
		return cli.Usage(err)
	}
	g, err := asim.Load(a.Graph)
	if err != nil {
		return err
	}
	o := asim.Options{Seed: a.Seed, Sets: a.Sets, Clients: a.Clients, Candidates: a.Candidates, Workers: a.Workers, Progress: tellProgress(cmd.ErrOrStderr())}
	switch {
	case a.AllPairs:
		return a.runAllPairs(cmd.Context(), g, o, cmd.OutOrStdout())
	case a.Tables:
		return a.runTables(g, places, cmd.OutOrStdout())
	}
	if err := o.Check(g); err != nil {
		return cli.Usage(err)
	}
	report, err := asim.Simulate(cmd.Context(), g, o)
	report.Graph.File = filepath.Base(a.Graph)
	if len(report.Rows) == 0 {
		return err
	}
	return errors.Join(err, report.WriteTable(cmd.OutOrStdout()), writeFile(a.JSON, report.WriteJSON), writeFile(a.Plot, report.WritePlot))
}

func (a *labASim) runAllPairs(ctx context.Context, g *asim.Graph, o asim.Options, out io.Writer) error {
	all, err := asim.RouteAll(ctx, g, o.Workers, o.Progress)
	if err != nil {
		return err
	}
	return errors.Join(all.WriteText(out), writeFile(a.JSON, all.WriteJSON))
}

func (a *labASim) runTables(g *asim.Graph, places []asim.Place, out io.Writer) error {
	report, err := asim.Tables(g, places)
	if err != nil {
		return err
	}
	report.Graph.File = filepath.Base(a.Graph)
	return errors.Join(report.WriteTables(out, places), writeFile(a.JSON, report.WriteJSON))
}

// tellProgress writes a line every two seconds, with an estimate of the remaining time.
func tellProgress(w io.Writer) func(asim.Progress) {
	began := time.Now()
	last := began
	return func(p asim.Progress) {
		now := time.Now()
		if now.Sub(last) < 2*time.Second {
			return
		}
		last = now
		left := time.Duration(float64(now.Sub(began)) / float64(p.Done) * float64(p.Total-p.Done))
		fmt.Fprintf(w, "[%d/%d] %s; %s left\n", p.Done, p.Total, p.What, left.Round(time.Second))
	}
}

// writeFile writes a new file, if it has a name.
func writeFile(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
