package lab

import (
	"github.com/spf13/cobra"

	"heddle/experiments/bench"
)

func newBenchReturnCommand() *cobra.Command {
	return benchCommand(bench.Return(), "in about a minute", "idle, full/10ms, bursty/100ms/up", &cobra.Command{
		Use:   "return",
		Short: "How soon a path that came back is used again",
		Long: `Cut one of three paths of 10, 15 and 25 ms until Heddle calls it silent, restore
it, and measure the time until it is up: with heddle up, and with each backend
of heddle split around the unmodified wireguard-go, relative to heddle up. The
tunnel is idle (a ping each 0.3 s), has bursts (100 kB each 0.3 s), has bursts
that the server sends at once, or carries a full download. The switching period
is 100 ms or 10 ms. The goal is two seconds.

About 25 minutes for five rounds. A run in which the emulated links were
late by more than 1 ms on average is repeated. Needs root.`,
		Example: `  heddle lab bench return --quick
  heddle lab bench return --only full --json return.json`,
	})
}
