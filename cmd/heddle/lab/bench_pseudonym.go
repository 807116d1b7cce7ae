package lab

import (
	"github.com/spf13/cobra"

	"heddle/experiments/bench"
)

func newBenchPseudonymCommand() *cobra.Command {
	return benchCommand(bench.Pseudonym(), "in about a minute", "rate, page, home, pages, latency/1KiB, latency/1KiB/sidecar", &cobra.Command{
		Use:   "pseudonym",
		Short: "Fetches and pages by a pseudonym: figures 3(a), 3(b), 5(a) and 5(b) of PoPSiCl",
		Long: `Measure fetches from a site, each with a TLS connection of its own: the median
time by the size of the object (latency), and how many a second eight clients
get (rate); and the median time that Chromium takes for a page of thirteen
objects, 474 KiB, with an empty cache (page), and the same with a line of
50 Mbit/s down, 10 Mbit/s up and 20 ms between client and cloud (home). Eight
clients that run no script fetch that page and its objects as a browser does:
how many pages a second they get (pages).

The ways are nginx that asks for a client's certificate (mtls), to which fetches
are relative; nginx that does not (https), to which pages are relative; a
sidecar before nginx (sidecar); and a gateway before the sidecar, which is the
whole way of a pseudonym, and which relays (gateway) or hands connections over
to the sidecar's machine as the paper's does (handoff, for pages). HAProxy and
nginx in place of the gateway relay to the same sidecar by the server name
(haproxy, nginx). With the page defence the sidecar has the strategy pieces,
that of the paper, behind either gateway (defence, defence-handoff). Tor is
Debian's, by three relays of a private network on this machine, to nginx (tor).

Other links have no limit, so the figures are of processors: client, cloud, site
and relays share those of this machine. Tor's relays have no distance here
either, so that Tor is slower elsewhere. Needs root, and what dist/install-deps
bench installs. --quick leaves out Tor and all sizes but one.`,
		Example: `  heddle lab bench pseudonym --quick
  heddle lab bench pseudonym --only page --json page.json
  heddle lab bench pseudonym --only rate,latency/1KiB/tor`,
	})
}
