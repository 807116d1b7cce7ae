package lab

import (
	"github.com/spf13/cobra"

	"heddle/experiments/bench"
)

func newBenchPseudonymCommand() *cobra.Command {
	return benchCommand(bench.Pseudonym(), "in under a minute", "rate, latency/1KiB, latency/1KiB/sidecar", &cobra.Command{
		Use:   "pseudonym",
		Short: "Fetches by a pseudonym: figures 3(a) and 3(b) of PoPSiCl",
		Long: `Measure fetches from a site, each with a TLS connection of its own: the median
time by the size of the object (latency), and how many a second eight clients
get (rate). The ways are nginx that asks for a client's certificate (mtls), to
which all others are relative; nginx that does not (https); a sidecar before
nginx (sidecar); and a gateway before the sidecar (gateway), which is the whole
way of a pseudonym.

Links have no limit, so the figures are of processors: client, cloud and site
share those of this machine. Needs root and nginx.`,
		Example: `  heddle lab bench pseudonym --quick
  heddle lab bench pseudonym --only rate --json pseudonym.json`,
	})
}
