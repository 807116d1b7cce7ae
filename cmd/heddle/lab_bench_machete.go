package main

import (
	"github.com/spf13/cobra"

	"heddle/lab/bench"
)

func newLabBenchMacheteCommand() *cobra.Command {
	return benchCommand(bench.Machete(), "in under five minutes", "two, unequal, three, unlimited, message, death, regions/fast, setup", &cobra.Command{
		Use:   "machete",
		Short: "Streams over overlay nodes: figures 5 and 6 and table III of MACHETE",
		Long: `Measure streams over overlay nodes (heddle node, heddle stream) against plain
TCP, and the kernel's MPTCP over the same nodes.

"two" is throughput over two paths of 100 Mbit/s, relative to plain TCP over one
of them; "unequal" the same with delays of 10 and 75 ms each way, relative to
TCP over the slower one; "three" compares schemes of shares over three paths,
relative to none. "unlimited" has no limits; it is relative to TCP through a
forwarder of user space. "message" is the time until the answer to a message of
1 KB over a session that is up, in round trips; "death" the longest time without
a byte at the server, with shares 2of3, while a node is killed.

"regions" is table III and figure 5: files of all sizes between Portugal and
Ireland, over nodes in eight regions, session set-up included; "setup" figure 6.

About an hour for five rounds, most of it files of 1 GB. A run in which the
emulated links were late by more than 1 ms on average is repeated. Needs root.`,
		Example: `  heddle lab bench machete --quick
  heddle lab bench machete --only two,unequal --json machete.json --plot machete.svg`,
	})
}
