package lab

import (
	"github.com/spf13/cobra"

	"heddle/experiments/bench"
)

func newBenchBackendsCommand() *cobra.Command {
	return benchCommand(bench.Backends(), "in about three minutes", "unlimited, limited/kernel, latency", &cobra.Command{
		Use:     "backends",
		Aliases: []string{"planes"},
		Short:   "The relay, the kernel and the route backend compared",
		Long: `Compare what decides the path of each packet: the relay, the kernel and the
route backend, at a switching period of 100 ms over three paths, relative to
no splitting. "unlimited" and "limited" are the TCP throughput of the unmodified
wireguard-go, over paths without limit and of 20 Mbit/s and 10 ms. "latency" is
the round trip of datagrams of 64 bytes, 1,000 a second; what is added to it is
the difference to datagrams that nothing splits, which go in between. A round
trip makes two passes through a backend, up and down; "pass" is half of what is
added.

About ten minutes for five rounds. A run in which the emulated links were late
by more than 1 ms on average is repeated. Needs root.`,
		Example: `  heddle lab bench backends --quick
  heddle lab bench backends --only latency,unlimited/kernel --json backends.json`,
	})
}
