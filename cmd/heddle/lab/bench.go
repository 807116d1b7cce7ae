package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/experiments/bench"
	"heddle/path"
)

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Repeat a paper's measurement, and print it beside the paper's figures",
		Long: `Repeat a paper's measurement in a world of this machine, with unmodified peers,
and print it beside the paper's figures. Runs are interleaved in rounds; what
counts is the ratio to the baseline of the same round.

The peers are the installed ones, or are built once, into the user's cache: the
first run of a bench with wireguard-go or QUIC needs Go and the source tree as
working directory, and later ones run anywhere. dist/install-deps bench installs
what the builds need.`,
		Example: "  heddle lab bench wireguard --quick",
	}
	cmd.AddCommand(newBenchWireGuardCommand(), newBenchQUICCommand(), newBenchMoshCommand(), newBenchBackendsCommand(), newBenchReturnCommand(), newBenchMacheteCommand(), newBenchDisguiseCommand(), newBenchPseudonymCommand(), newBenchGatewayCommand(), newBenchCrowdCommand(), newBenchCensorCommand(), newBenchProbesCommand(), newBenchSoakCommand(), newBenchRandomnessCommand())
	return cmd
}

func newBenchWireGuardCommand() *cobra.Command {
	return benchCommand(bench.WireGuard(), "in under four minutes", "equal, unequal/100ms, shared, unlimited", &cobra.Command{
		Use:   "wireguard",
		Short: "WireGuard throughput against the switching period: figure 8(a) of CoMPS",
		Long: `Measure TCP throughput through a WireGuard tunnel, down and up, against the
switching period, over three paths of 20 Mbit/s: equal ones of 10 ms, and
unequal ones of 10, 15 and 25 ms, relative to no switching. In shared the server
sends at most 18 Mbit/s, and each path carries 50 Mbit/s: one path has the full
rate, and several gain nothing from each other's queues. Then over paths without
limit, relative to plain wireguard-go: "heddle up" over one path and over three,
and wireguard-go through "heddle split".

The server is the unmodified wireguard-go, which is built in the source tree at
first, or the installed one where there is no source tree; iperf3 measures. Each
case takes iperf3 five seconds down and, except in shared, five up, of which the
first second does not count: about 27 minutes for five rounds, and under four
minutes with --quick, which takes a few cases, four seconds and two rounds. A
run in which the emulated links were late by more than 1 ms on average is
repeated. All cases of a round draw the same weights. Needs root.`,
		Example: `  heddle lab bench wireguard --quick
  heddle lab bench wireguard --only equal/100ms,unlimited
  heddle lab bench wireguard --json wireguard.json --plot wireguard.svg`,
	})
}

// reportFlags say where a report is written.
type reportFlags struct {
	JSON string `flag:"json" help:"write the report as JSON to this <file>"`
	Plot string `flag:"plot" help:"write a plot as SVG to this <file>"`
}

// benchCommand makes cmd run a bench, with the flags that all benches share. quick is the duration with --quick; cases
// are examples for --only.
func benchCommand(b bench.Bench, quick, cases string, cmd *cobra.Command) *cobra.Command {
	f := struct {
		reportFlags
		Rounds     int      `flag:"rounds" help:"how often each case is measured"`
		Quick      bool     `flag:"quick" help:"a few cases and two rounds, "`
		Only       []string `flag:"only" help:"only <cases> that begin with this, and their baselines: " list:"commas"`
		Congestion string   `flag:"congestion" help:"TCP congestion <control> in the worlds, such as reno; without it the machine's"`
	}{Rounds: 5}
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.Quick && !cmd.Flags().Changed("rounds") {
			f.Rounds = 2
		}
		if f.Rounds < 1 {
			return cli.Usage(&path.Error{What: "--rounds", Why: fmt.Sprintf("%d is fewer than 1", f.Rounds), Hint: "five are the usual"})
		}
		if err := checkPlot(f.Plot); err != nil {
			return err
		}
		o := bench.Options{Rounds: f.Rounds, Quick: f.Quick, Only: f.Only, Congestion: f.Congestion, Progress: cmd.ErrOrStderr()}
		if err := b.Check(o); err != nil {
			return cli.Usage(err)
		}
		var err error
		if o.Heddle, err = os.Executable(); err != nil {
			return err
		}
		report, err := b.Run(cmd.Context(), o)
		if len(report.Rows) == 0 {
			return err
		}
		return errors.Join(err, report.WriteTable(cmd.OutOrStdout()), writeFile(f.JSON, report.WriteJSON), writeFile(f.Plot, report.WritePlot))
	}
	bind.Flags(cmd, &f)
	cmd.Flags().Lookup("quick").Usage += quick
	cmd.Flags().Lookup("only").Usage += cases
	return cmd
}

// checkPlot returns an error if the plot cannot be written.
func checkPlot(file string) error {
	if file == "" || filepath.Ext(file) == ".svg" {
		return nil
	}
	return cli.Usage(&path.Error{What: "--plot " + file, Why: "only SVG is written", Hint: "name a file that ends in .svg"})
}
