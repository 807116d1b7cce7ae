package lab

import (
	"github.com/spf13/cobra"

	"heddle/experiments/bench"
)

func newBenchMoshCommand() *cobra.Command {
	return benchCommand(bench.Mosh(), "in about two minutes", "equal/10ms, shared", &cobra.Command{
		Use:   "mosh",
		Short: "Mosh throughput against the switching period: figure 8(d) of CoMPS",
		Long: `Measure a Mosh session whose whole screen changes all the time, against the
switching period, over three paths of 20 Mbit/s and 10 ms, relative to no
switching: what the networks bring down to the client, and how many screens a
second its terminal shows; and mosh by itself over one of them. In shared the
server sends at most 18 Mbit/s, and each path carries 50 Mbit/s: one path has
the full rate.

mosh-server, mosh-client, ssh and sshd are the installed ones; heddle mosh joins
them. mosh-server sends once in half a round trip, and at most fifty times a
second, whatever the paths could carry. Each case takes about ten seconds, of
which four count: about twelve minutes for five rounds. A run in which the
emulated links were late by more than 1 ms on average is repeated. All cases of
a round draw the same weights. Needs root, python3, mosh and openssh-server.`,
		Example: `  heddle lab bench mosh --quick
  heddle lab bench mosh --json mosh.json --plot mosh.svg`,
	})
}
