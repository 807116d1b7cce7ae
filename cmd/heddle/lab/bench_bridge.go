package lab

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"heddle/experiments/bench"
)

// bridgeBench makes cmd run a bench of a bridge, whose options have been bound to o.
func bridgeBench(run func(context.Context, bench.BridgeOptions) (bench.Report, error), o *bench.BridgeOptions, cmd *cobra.Command) *cobra.Command {
	var jsonFile string
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if o.Heddle, err = os.Executable(); err != nil {
			return err
		}
		o.Progress = cmd.ErrOrStderr()
		report, err := run(cmd.Context(), *o)
		if len(report.Rows) == 0 {
			return err
		}
		return errors.Join(err, report.WriteTable(cmd.OutOrStdout()), writeFile(jsonFile, report.WriteJSON))
	}
	cmd.Flags().StringVar(&jsonFile, "json", "", "write the report as JSON to this `file`")
	return cmd
}

func newBenchProbesCommand() *cobra.Command {
	var o bench.BridgeOptions
	cmd := bridgeBench(bench.Probes, &o, &cobra.Command{
		Use:   "probes",
		Short: "Compare what active probes learn of a bridge and of a silent service",
		Long: `Send probes to a bridge, and to a service that reads, never answers, and ends
connections at the same age. Print what a prober sees of each: bytes of answer,
bytes that are not acknowledged, FIN or RST, and the age of the connection; and
what happens to a user of the bridge meanwhile, and to its memory. Probes are
silence, random bytes of many lengths, the replay of a user's first flight, a
part of it, the same with a changed bit, a TLS ClientHello, and requests of HTTP
and SSH. Every second one ends its direction at once.

A bridge listens to a stranger for one to three minutes, and to a thousand at a
time: about ten minutes in all. Needs root.`,
		Example: "  heddle lab bench probes\n  heddle lab bench probes --probes 50 --json probes.json",
	})
	cmd.Flags().IntVar(&o.Probes, "probes", 2000, "how many of each kind")
	return cmd
}

func newBenchSoakCommand() *cobra.Command {
	var o bench.BridgeOptions
	cmd := bridgeBench(bench.Soak, &o, &cobra.Command{
		Use:   "soak",
		Short: "Measure memory and descriptors of a bridge while links come and go",
		Long: `Download by a bridge for a while, in eight links at a time of 1 MB each, with
connections of 100 kB, and print memory and descriptors of both ends at the end
of each minute, relative to the first. Needs root.`,
		Example: "  heddle lab bench soak --for 10m",
	})
	cmd.Flags().DurationVar(&o.Length, "for", 10*time.Minute, "how long")
	return cmd
}

func newBenchRandomnessCommand() *cobra.Command {
	var o bench.BridgeOptions
	cmd := bridgeBench(bench.Randomness, &o, &cobra.Command{
		Use:   "randomness",
		Short: "Have dieharder test the bytes that the cover random sends",
		Long: `Record the connections of links that carry zeros, and have dieharder test their
bytes: the first 1,000 of each connection and direction ("first"), and all of
each direction ("up", "down"). It prints the p-values of each test, and how many
dieharder calls weak or failed, beside controls of /dev/urandom: 20 of the same
length, or 3 for streams of more than 100 MB. Tests that take more bytes than
there are, are left out. Takes about ten minutes. Needs root and dieharder.`,
		Example: "  heddle lab bench randomness --links 1000",
	})
	cmd.Flags().IntVar(&o.Links, "links", 1000, "how many links")
	return cmd
}
