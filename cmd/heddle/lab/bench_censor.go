package lab

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"heddle/experiments/censor"
)

func newBenchCensorCommand() *cobra.Command {
	var o censor.TorOptions
	var jsonFile string
	cmd := &cobra.Command{
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
			var err error
			if o.Heddle, err = os.Executable(); err != nil {
				return err
			}
			o.Progress = cmd.ErrOrStderr()
			blocked, err := censor.Tor(cmd.Context(), o)
			if blocked == nil {
				return err
			}
			return errors.Join(err, blocked.WriteTable(cmd.OutOrStdout()), writeFile(jsonFile, blocked.WriteJSON))
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Only, "only", nil, "only these `attacks`")
	flags.StringSliceVar(&o.Ways, "ways", nil, "only these `transports`")
	flags.DurationVar(&o.Bootstrap, "bootstrap", 2*time.Minute, "how long Tor may take to bootstrap")
	flags.DurationVar(&o.Fetch, "fetch", 3*time.Minute, "how long it may take to fetch")
	flags.StringVar(&jsonFile, "json", "", "write the report as JSON to this `file`")
	return cmd
}
