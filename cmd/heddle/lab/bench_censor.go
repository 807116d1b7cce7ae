package lab

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/experiments/censor"
)

func newBenchCensorCommand() *cobra.Command {
	f := struct {
		Only      []string      `flag:"only" help:"only these <attacks>" list:"commas"`
		Ways      []string      `flag:"ways" help:"only these <transports>" list:"commas"`
		Bootstrap time.Duration `flag:"bootstrap" help:"how long Tor may take to bootstrap"`
		Fetch     time.Duration `flag:"fetch" help:"how long it may take to fetch"`
		JSON      string        `flag:"json" help:"write the report as JSON to this <file>"`
	}{Bootstrap: 2 * time.Minute, Fetch: 3 * time.Minute}
	return bind.Flags(&cobra.Command{
		Use:   "censor",
		Short: "Tor and its transports against a censor on the way",
		Long: `Try whether Tor bootstraps and fetches 1 MB while a censor on the client's way
attacks its connections: Tor by a plain bridge, by obfs4, and by heddle disguise
pt with the covers random, random with a printable prefix, and embed. Those that
end in 15kB have --max-bytes-per-connection 15kB. "heddle lab censor --help"
lists the attacks; none is the case to compare with.

The bridges and all programs are in a private Tor network, which starts in half
a minute. All transports are tried at the same time, over 5.6 Mbit/s down and
0.7 up. A row takes as long as the slowest transport, and those that fail take
all of --bootstrap or --fetch: about half an hour in all. Needs root, tor,
obfs4proxy and curl.`,
		Example: `  heddle lab bench censor
  heddle lab bench censor --only none,freeze --ways tor,random-15kB --json censor.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			blocked, err := censor.Tor(cmd.Context(), censor.TorOptions{Heddle: program, Only: f.Only, Ways: f.Ways,
				Bootstrap: f.Bootstrap, Fetch: f.Fetch, Progress: cmd.ErrOrStderr()})
			if blocked == nil {
				return err
			}
			return errors.Join(err, blocked.WriteTable(cmd.OutOrStdout()), writeFile(f.JSON, blocked.WriteJSON))
		},
	}, &f)
}
