// Package overlay is `heddle overlay`: surveying paths by overlay nodes, and choosing among them.
package overlay

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/overlay/survey"
)

// Command is `heddle overlay`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "overlay",
		Short: "Choose the overlay nodes whose paths the fewest networks see together",
		Long: `Overlay measures which networks (autonomous systems) lie on the paths from here
to each overlay node, and from each node to a destination, and chooses nodes and
uplinks such that as few networks as possible see more than one path.`,
		Example: `  heddle overlay survey 192.0.2.1:443 --via home=if:eth0 --via lte=if:wwan0
  heddle overlay choose 192.0.2.1:443 --via home=if:eth0 --via lte=if:wwan0`,
	}
	cmd.AddCommand(newSurveyCommand(), newChooseCommand(), newTraceCommand())
	return cmd
}

// planFlags are shared by survey and choose: the available paths.
type planFlags struct {
	bind.Printing
	Table string   `flag:"table" help:"the <FILE> of the table of ASes; asn.table in Heddle's settings if not given"`
	Via   []string `flag:"via" help:"an uplink, <NAME=if:DEVICE> or NAME=src:ADDRESS; one flag each" complete:"path"`
	Node  []string `flag:"node" help:"a <NODE>: a pass's name or file, or NAME=HOST:PORT; all passes if not given"`
}

// plan resolves the flags, and opens the earlier measurements.
func (f *planFlags) plan(ctx context.Context, destination string) (*survey.Plan, *survey.Cache, error) {
	p, err := survey.NewPlan(ctx, destination, f.Via, f.Node)
	if _, wrong := errors.AsType[*survey.ArgumentError](err); wrong {
		err = cli.Usage(err)
	}
	if err != nil {
		return nil, nil, err
	}
	cache, err := survey.OpenCache()
	return p, cache, err
}
