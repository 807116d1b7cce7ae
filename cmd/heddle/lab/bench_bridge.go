package lab

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/experiments/bench"
)

// bridgeFlags holds the flags of the benches of a bridge, which take one number each.
type bridgeFlags struct {
	JSON   string        `flag:"json" help:"write the report as JSON to this <file>"`
	Probes int           `flag:"probes" help:"how many of each kind"`
	Length time.Duration `flag:"for" help:"how long"`
	Links  int           `flag:"links" help:"how many links"`
}

// bridgeBench makes cmd run a bench of a bridge, with the flag number.
func bridgeBench(run func(context.Context, bench.BridgeOptions) (bench.Report, error), number string, cmd *cobra.Command) *cobra.Command {
	f := bridgeFlags{Probes: 2000, Length: 10 * time.Minute, Links: 1000}
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		report, err := run(cmd.Context(), bench.BridgeOptions{Heddle: program, Probes: f.Probes, Length: f.Length, Links: f.Links, Progress: cmd.ErrOrStderr()})
		if len(report.Rows) == 0 {
			return err
		}
		return errors.Join(err, report.WriteTable(cmd.OutOrStdout()), writeFile(f.JSON, report.WriteJSON))
	}
	return bind.Flags(cmd, &f, "json", number)
}

func newBenchProbesCommand() *cobra.Command {
	return bridgeBench(bench.Probes, "probes", &cobra.Command{
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
}

func newBenchSoakCommand() *cobra.Command {
	return bridgeBench(bench.Soak, "for", &cobra.Command{
		Use:   "soak",
		Short: "Measure memory and descriptors of a bridge while links come and go",
		Long: `Download by a bridge for a while, in eight links at a time of 1 MB each, with
connections of 100 kB, and print memory and descriptors of both ends at the end
of each minute, relative to the first. Needs root.`,
		Example: "  heddle lab bench soak --for 10m",
	})
}

func newBenchRandomnessCommand() *cobra.Command {
	return bridgeBench(bench.Randomness, "links", &cobra.Command{
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
}
