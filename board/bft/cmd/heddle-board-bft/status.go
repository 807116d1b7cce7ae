package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/board/bft"
)

func newStatusCommand() *cobra.Command {
	var home string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how the replica of this machine is",
		Long: `Status asks the replica that runs in a home how it is: how many blocks it has,
which other replicas it is connected to and how many they say they have, and how
much there is on the board. It is the word of this replica alone.`,
		Example: `  heddle-board-bft status --home board/0
  heddle-board-bft status --home board/0 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, detail, err := bft.AskStatus(cmd.Context(), home)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(s)
			}
			out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintf(out, "replica\t%d of %d, of which %d may lie\n", detail.Replica, len(detail.Peers)+1, detail.Faults)
			fmt.Fprintf(out, "blocks\t%d, the last at %s\n", detail.Height, s.Clock.Format(time.RFC3339))
			fmt.Fprintf(out, "tuples\t%d, %d bytes, of %d authors\n", s.Tuples, s.Bytes, s.Authors)
			fmt.Fprintf(out, "waiting\t%d requests\n", s.Waiting)
			if detail.Joining {
				fmt.Fprintln(out, "joining\tit takes up the state of the others, and knows nothing yet")
			}
			if detail.Accused > 0 {
				fmt.Fprintf(out, "accused\t%d times was a replica seen signing two things for one height: see the log\n", detail.Accused)
			}
			for _, p := range detail.Peers {
				state := "down"
				if p.Up {
					state = fmt.Sprintf("up, says it has %d blocks", p.Height)
				}
				fmt.Fprintf(out, "peer %d\t%s, %s\n", p.Replica, p.Address, state)
			}
			return out.Flush()
		},
	}
	cmd.Flags().StringVar(&home, "home", "", "the replica's `DIRECTORY`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	_ = cmd.MarkFlagRequired("home")
	_ = cmd.MarkFlagDirname("home")
	return cmd
}
