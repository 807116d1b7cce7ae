package lab

import (
	"github.com/spf13/cobra"

	"heddle/experiments/bench"
)

func newBenchDisguiseCommand() *cobra.Command {
	return benchCommand(bench.Disguise(), "in some ten minutes", "dsl85, dsl450/obfs4, steady/450ms", &cobra.Command{
		Use:   "disguise",
		Short: "Downloads and streams by Tor and its transports: table 3, figures 6 and 7 of StegoTorus",
		Long: `Measure downloads over a link of 5.6 Mbit/s down and 0.7 Mbit/s up with a round
trip of 85 or 450 ms: directly, by Tor, by a bridge of Tor, and by transports to
that bridge, relative to Tor. It measures goodput by size, and for 1,000,000
bytes the time to the first byte and the bytes on the link, with all headers, in
each direction. Then (steady) it reads streams of 10, 50 and 100 kB/s over the
same link with round trips of 100, 250 and 450 ms, and prints medians over 20
seconds of what arrived of the stream and of what the link carried down. Last
(fast85 and fast450) it downloads by covers without Tor over a link of
100 Mbit/s, relative to the download without a cover. The covers http and https
imitate the website that comes with Heddle.

Tor and obfs4proxy are the installed ones, in a private Tor network of three
relays for each dsl85, dsl450 and steady. Each starts in about a minute. A round
takes about forty minutes, most of it steady and the cover embed, which --quick
leaves out. A run in which the emulated links were late by more than 1 ms on
average is repeated. Needs root, tor, obfs4proxy and curl.`,
		Example: `  heddle lab bench disguise --quick
  heddle lab bench disguise --only dsl85 --json disguise.json --plot disguise.svg`,
	})
}
