package disguise

import (
	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/status"
)

func newStatusCommand() *cobra.Command {
	var f bind.Printing
	return bind.Flags(&cobra.Command{
		Use:   "status [NAME]",
		Short: "Show bridges and their clients: links, bytes, what was refused",
		Long: `Status shows the bridges of this user and the clients that run here, or the one
called NAME, as heddle status does.

For a bridge it prints each link with its connections and bytes, and how many
connections it did not answer, by reason. For a client it prints the paths of
each link, and the covers if there are several: how many connections each has
and had, and what they carried.`,
		Example: "  heddle disguise status\n  heddle disguise status bridge-443 --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return status.Disguises(cmd.Context(), cmd.OutOrStdout(), args, f.JSON)
		},
	}, &f)
}
