package lab

import (
	"github.com/spf13/cobra"

	"heddle/experiments/bench"
)

func newBenchQUICCommand() *cobra.Command {
	return benchCommand(bench.QUIC(), "in under five minutes", "distinct, one-exit/quiche, shared/distinct/quic-go", &cobra.Command{
		Use:   "quic",
		Short: "QUIC throughput against the switching period: figure 8(b) and (c) of CoMPS",
		Long: `Measure what a quic-go client downloads and uploads over HTTP/3 through "heddle
split", against the switching period, over three paths of 20 Mbit/s and 10 ms,
relative to no switching. In the cases distinct the server sees an address for
each path; in one-exit it sees one address with a port for each path, as where
all paths are tunnels to one provider. In exit all paths lead to one proxy, and
in tunnel the session goes through "heddle up": one address and one port. In
shared/distinct and shared/exit the server sends at most 18 Mbit/s, and each
path carries 50 Mbit/s: one path has the full rate, and several gain nothing
from each other's queues. In aids, over unequal delays, --at-gaps and --settle
are compared. Cases that end in -reorder have --reorder 100ms, those in -drain
--drain 250ms, and those in -at-gaps --at-gaps 5ms.

The servers are made of quic-go, aioquic and quiche, with their library's
defaults; quiche is told to let clients migrate. They are built in the user's
cache directory at first: aioquic takes python3 and pip, quiche takes cargo,
cmake, libclang and several minutes, and quic-go the source tree. The cases
shared also have the server of the package ngtcp2-server.

Each case takes five seconds down and, except in shared, five up, of which the
first does not count: about 25 minutes a round, and under five minutes with
--quick, which takes two cases of each server, two seconds and two rounds. A
run in which the emulated links were late by more than 1 ms on average is
repeated. All cases of a round draw the same weights. Needs root.`,
		Example: `  heddle lab bench quic --quick
  heddle lab bench quic --only distinct/quiche,one-exit/quiche/10ms
  heddle lab bench quic --json quic.json --plot quic.svg`,
	})
}
