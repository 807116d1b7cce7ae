package lab

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/cli"
	"heddle/experiments/collect"
	"heddle/path"
)

func newSitesCommand() *cobra.Command {
	c := collect.Choice{}
	var out string
	cmd := &cobra.Command{
		Use:   "sites",
		Short: "Choose pages for heddle lab collect",
		Long: `Choose pages below a directory, such as those of Debian's documentation
packages, and write them as a file for "heddle lab collect". A page is fit that
includes five or more files, and has 100 KiB to 3 MiB with them. They are taken
from all packages in turn; each package gets a protocol and a latency.`,
		Example: `  heddle lab sites --out sites.json
  heddle lab sites --monitored 10 --unmonitored 30 --out few.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sites, err := c.Choose()
			if err != nil {
				return err
			}
			if out == "-" {
				return sites.Write(cmd.OutOrStdout())
			}
			if err := writeFile(out, sites.Write); err != nil {
				return &path.Error{What: "sites " + out, Err: err}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d pages to monitor, %d others\n", out, c.Monitored, c.Unmonitored)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Root, "root", "/usr/share", "the `DIR` to look in, which the sites then serve")
	flags.IntVar(&c.Monitored, "monitored", 40, "how many pages an observer looks for")
	flags.IntVar(&c.Unmonitored, "unmonitored", 150, "how many others")
	flags.Uint64Var(&c.Seed, "seed", 1, "makes the choice repeatable")
	flags.StringVar(&out, "out", "-", "the `FILE` to write; - prints it")
	return cmd
}

func newCollectCommand() *cobra.Command {
	o := collect.Options{}
	var file, schedule, every string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "collect --sites FILE --out FILE",
		Short: "Record page loads as each path's observer sees them",
		Long: `Load pages with an unmodified Chromium, headless and with a fresh profile each
time, through "heddle up" in a world of the lab, with one capture for each path
(CoMPS, figure 5a). The result is a Parquet data set for heddle-eval.

Each monitored page is visited as often as --visits says, the others once, in
an order that is drawn for each round. With --plain, each visit is also made
over one path, in turn with the other.

A visit that fails, or during which the emulated links were late by more than
1 ms on average, is made again, up to five times in all. Visits that still fail
are dropped. The same command continues a run that was ended, and makes the
dropped visits again. Needs root, chromium, node and npm.`,
		Example: `  heddle lab sites --out sites.json
  heddle lab collect --sites sites.json --visits 20 --paths 3 --schedule weighted --every 100ms --out split.parquet --plain plain.parquet`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Sites, err = collect.ReadSites(file); err != nil {
				return err
			}
			if o.Heddle, err = os.Executable(); err != nil {
				return err
			}
			o.Schedule = []string{"--schedule", schedule, "--every", every}
			o.Talk = cmd.ErrOrStderr()
			s, err := collect.Run(cmd.Context(), o)
			if err != nil {
				if s.Made > 0 {
					fmt.Fprintf(o.Talk, "%d visits were made; the same command goes on from here\n", s.Made)
				}
				return err
			}
			if asJSON {
				return cli.WriteJSON(cmd.OutOrStdout(), s)
			}
			return printCollected(cmd, s, o.DryRun)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "sites", "", "the `FILE` of pages that heddle lab sites made")
	flags.IntVar(&o.Visits, "visits", 20, "how often a monitored page is visited")
	flags.IntVar(&o.Paths, "paths", 3, "over how many paths a visit is split, 1 to 3")
	flags.StringVar(&schedule, "schedule", "weighted", "as for heddle up")
	flags.StringVar(&every, "every", "100ms", "as for heddle up")
	flags.StringVar(&o.Out, "out", "", "the `FILE` for visits that are split")
	flags.StringVar(&o.Plain, "plain", "", "the `FILE` for the same visits over one path")
	flags.IntVar(&o.Jobs, "jobs", 1, "how many visits at once; more are late on a small machine")
	flags.Uint64Var(&o.Seed, "seed", 1, "makes the order of visits repeatable")
	flags.BoolVar(&o.DryRun, "dry-run", false, "say how many visits there would be")
	flags.BoolVar(&asJSON, "json", false, "print the summary as JSON")
	_ = cmd.MarkFlagRequired("sites")
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

func printCollected(cmd *cobra.Command, s collect.Summary, dry bool) error {
	out := cmd.OutOrStdout()
	if dry {
		_, err := fmt.Fprintf(out, "%d visits of %d sites\n", s.Visits, s.Sites)
		return err
	}
	_, err := fmt.Fprintf(out, "%s: %d visits, %d packets; %d failed, %d repeats\n",
		strings.TrimSuffix(s.Out+" "+s.Plain, " "), s.Kept, s.Packets, s.Failed, s.Repeats)
	return err
}
