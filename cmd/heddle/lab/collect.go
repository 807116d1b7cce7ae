package lab

import (
	"fmt"
	"io"
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
	var file, schedule, every, cloud string
	var defences []string
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

With --cloud the pages are loaded by pseudonyms of a cloud instead, with each
strategy of the page defence that --defence names, and captured between the
client and the cloud. With "pages" they are of one site, with "sites" each is of
a site of its own. A data set is written for each strategy: loads-pieces.parquet
for --out loads.parquet. Chromium keeps certificates and the defence's Service
Worker from one load to the next, and starts with an empty cache and without
connections.

A visit that fails, or during which the emulated links were late by more than
1 ms on average, is made again, up to five times in all. Visits that still fail
are dropped. The same command continues a run that was ended, and makes the
dropped visits again. Needs root, chromium, node and npm.`,
		Example: `  heddle lab sites --out sites.json
  heddle lab collect --sites sites.json --visits 20 --paths 3 --schedule weighted --every 100ms --out split.parquet --plain plain.parquet
  heddle lab sites --monitored 20 --unmonitored 0 --out twenty.json
  heddle lab collect --cloud pages --defence none,pieces,pad-pow2 --sites twenty.json --visits 40 --out pages.parquet`,
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
			if cloud != "" {
				return collectCloud(cmd, collect.CloudOptions{Options: o, Cloud: cloud, Defences: defences}, asJSON)
			}
			s, err := collect.Run(cmd.Context(), o)
			if err != nil {
				goesOn(o.Talk, s)
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
	flags.StringVar(&cloud, "cloud", "", "load by pseudonyms, and tell apart `pages` of one site or sites of the cloud: pages or sites")
	flags.StringSliceVar(&defences, "defence", []string{"none"}, "with --cloud: `strategies` of the page defence")
	flags.IntVar(&o.Jobs, "jobs", 1, "how many visits at once; more are late on a small machine")
	flags.Uint64Var(&o.Seed, "seed", 1, "makes the order of visits repeatable")
	flags.BoolVar(&o.DryRun, "dry-run", false, "say how many visits there would be")
	flags.BoolVar(&asJSON, "json", false, "print the summary as JSON")
	_ = cmd.MarkFlagRequired("sites")
	_ = cmd.MarkFlagRequired("out")
	for _, name := range []string{"paths", "schedule", "every", "plain"} {
		cmd.MarkFlagsMutuallyExclusive("cloud", name)
	}
	return cmd
}

// goesOn says that a collection can be continued.
func goesOn(talk io.Writer, s collect.Summary) {
	if s.Made > 0 {
		fmt.Fprintf(talk, "%d visits were made; the same command goes on from here\n", s.Made)
	}
}

// collectCloud collects loads by pseudonyms.
func collectCloud(cmd *cobra.Command, o collect.CloudOptions, asJSON bool) error {
	all, err := collect.RunCloud(cmd.Context(), o)
	if err != nil {
		for _, s := range all {
			goesOn(o.Talk, s)
		}
		return err
	}
	if asJSON {
		return cli.WriteJSON(cmd.OutOrStdout(), all)
	}
	for _, s := range all {
		if err := printCollected(cmd, s, o.DryRun); err != nil {
			return err
		}
	}
	return nil
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
