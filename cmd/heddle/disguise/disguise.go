// Package disguise is `heddle disguise`: running a bridge, and using one.
package disguise

import "github.com/spf13/cobra"

// Command is `heddle disguise`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disguise",
		Short: "Carry traffic in connections that do not look like it",
		Long: `Disguise carries streams and datagrams to a bridge, in connections that do not
look like what is inside. A network on the way sees the bridge's address, and
what the cover of the connections shows.

A client needs the bridge line, which its owner gives to those whom the bridge
is for. The bridge answers nobody else. With several paths the connections of a
client leave by all of them, so that none of their networks sees them all.

The cover embed replays recorded traces: packets of their sizes, directions,
times and headers carry what is hidden. Record makes such traces from captures.`,
		Example: `  heddle disguise keys --address 192.0.2.9:443 --client bridge.toml
  heddle disguise serve --destinations
  heddle disguise dial bridge.toml --listen 127.0.0.1:1080 --via home=if:eth0 --via lte=if:wwan0
  heddle disguise record call.pcapng --out call.db`,
	}
	cmd.AddCommand(newKeysCommand(), newServeCommand(), newDialCommand(), newStatusCommand(), newRecordCommand(), newTracesCommand(), newPTCommand(),
		newTorrcCommand(), newSiteCommand(), newHelloCommand())
	return cmd
}
