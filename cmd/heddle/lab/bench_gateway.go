package lab

import (
	"github.com/spf13/cobra"

	"heddle/experiments/bench"
)

func newBenchGatewayCommand() *cobra.Command {
	return benchCommand(bench.Gateway(), "in some five minutes", "rate, latency/1KiB, object/10MiB/handoff", &cobra.Command{
		Use:   "gateway",
		Short: "Modes of the gateway of pseudonyms: figures 3(a), 3(b) and 4(a) to 4(d) of PoPSiCl",
		Long: `Measure fetches from a site, each with a TLS connection of its own, by each mode
of a pseudonym's gateway. The cases are

  latency/SIZE/MODE   the median time of a fetch
  rate/MODE/CLIENTS   fetches a second of one client, and of eight
  offered/N/MODE      answers a second to N requests a second
  burst/N/MODE        the time until N clients who begin at once have 10 KiB
  object/SIZE/MODE    goodput of four clients, and the time of processors that
                      the process of the gateway or relay takes for a GiB
  rules/N/MODE        a fetch of 10 and of 100 KiB while the switch has N rules
                      of other connections, and how fast such rules come and go
  ovs/...             the same for handoff by a bridge of Open vSwitch, beside
                      mutual TLS through that bridge
  stall/TROUBLE/MODE  the longest fetch of 10 KiB while one packet is lost,
                      overtakes others or comes twice, each in turn
  pseudonyms/N        a fetch of 10 and of 100 KiB while the site has N
                      pseudonyms, and the memory of the cloud's process and of
                      the site's sidecar
  established/N       N clients connect by handoff to sites, ask once, and stay.
                      Then all ask again by the same connections, while the
                      sockets of the gateway's machine are counted and the links
                      to the sites captured: what the gateway has of that (0),
                      the time to connect, and the memory of each part

The modes are those of gateway-mode in cloud.toml: proxy, fdpass, handoff, v6.
With handoff-direct the site's machine answers past the gateway, too.
HAProxy and nginx in place of the gateway relay by the server name (haproxy,
nginx). All lead to the same kind of sidecar before the same nginx, and are
relative to that sidecar without a gateway (mtls). Nginx itself, without a
client's certificate, is https; bursts are relative to it, as the paper's are.
Time of processors is relative to HAProxy's. Questions to the nameserver do not
count: a client of v6 takes 16 addresses in turn.

Links have no limit, so the figures are of processors, which client, gateway and
site share. For stalls the client's link has 5 ms each way. The column GOAL has
what Heddle wants to reach. Needs root, and what dist/install-deps bench
installs. --quick measures less long, and takes fewer sizes, rules, pseudonyms
and connections. Without it the rules take some minutes of each round, and
100,000 connections four minutes and 10 GB of memory.`,
		Example: `  heddle lab bench gateway --quick
  heddle lab bench gateway --only rate,latency/1KiB --json gateway.json --plot gateway.svg
  heddle lab bench gateway --only rules,pseudonyms --rounds 3`,
	})
}

// newBenchCrowdCommand is many clients of the bench gateway.
func newBenchCrowdCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "crowd",
		Short:  "Let many clients connect to a site and stay, for heddle lab bench gateway",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.RunCrowd(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
