package lab

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/config"
	"heddle/experiments/collect"
	"heddle/path"
)

func newSitesCommand() *cobra.Command {
	f := struct {
		Root        string `flag:"root" help:"the <DIR> to look in, which the sites then serve"`
		Monitored   int    `flag:"monitored" help:"how many pages an observer looks for"`
		Unmonitored int    `flag:"unmonitored" help:"how many others"`
		Seed        uint64 `flag:"seed" help:"makes the choice repeatable"`
		Out         string `flag:"out" help:"the <FILE> to write; - prints it"`
	}{Root: "/usr/share", Monitored: 40, Unmonitored: 150, Seed: 1, Out: "-"}
	return bind.Flags(&cobra.Command{
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
			sites, err := collect.Choice{Root: f.Root, Monitored: f.Monitored, Unmonitored: f.Unmonitored, Seed: f.Seed}.Choose()
			if err != nil {
				return err
			}
			if f.Out == "-" {
				return sites.Write(cmd.OutOrStdout())
			}
			if err := writeFile(f.Out, sites.Write); err != nil {
				return &path.Error{What: "sites " + f.Out, Err: err}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d pages to monitor, %d others\n", f.Out, f.Monitored, f.Unmonitored)
			return err
		},
	}, &f)
}

func newCollectCommand() *cobra.Command {
	f := struct {
		Sites    string   `flag:"sites" help:"the <FILE> of pages that heddle lab sites made" complete:"file"`
		Visits   int      `flag:"visits" help:"how often a monitored page is visited"`
		Paths    int      `flag:"paths" help:"over how many paths a visit is split, 1 to 3"`
		Schedule string   `flag:"schedule" help:"as for heddle up"`
		Every    string   `flag:"every" help:"as for heddle up"`
		Out      string   `flag:"out" help:"the <FILE> for visits that are split"`
		Plain    string   `flag:"plain" help:"the <FILE> for the same visits over one path"`
		Cloud    string   `flag:"cloud" help:"load by pseudonyms, and tell apart <pages> of one site or sites of the cloud: pages or sites" complete:"pages sites"`
		Defence  []string `flag:"defence" help:"with --cloud: <strategies> of the page defence: {defences}" complete:"defences" list:"commas"`
		Over     []string `flag:"over" help:"load as a censor sees it, by <ways>, see above" complete:"direct tor obfs4 random embed http https website-http website-https" list:"commas"`
		Website  string   `flag:"website" help:"with --over: the <FILE> of the recorded website, for web covers" complete:"file"`
		Captures string   `flag:"captures" help:"with --over: keep the captures in this <DIR>, one directory for each way" complete:"dir"`
		Keep     bool     `flag:"keep" help:"with --over: keep one Tor, and record page loads alone"`
		Jobs     int      `flag:"jobs" help:"how many visits at once; more are late on a small machine"`
		Seed     uint64   `flag:"seed" help:"makes the order of visits repeatable"`
		DryRun   bool     `flag:"dry-run" help:"say how many visits there would be"`
		JSON     bool     `flag:"json" help:"print the summary as JSON"`
	}{Visits: 20, Paths: 3, Schedule: "weighted", Every: "100ms", Defence: []string{"none"}, Jobs: 1, Seed: 1}
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

With --over the pages are loaded in the ways that a censor is to tell apart,
over the DSL link of StegoTorus, and captured at the router of the client's
network: direct, or by Tor with its own protocol (tor), obfs4, or Heddle's
covers (random, embed, http, https). Each visit has a new Tor, and its
connections are recorded from their beginnings; with --keep one Tor stays.
website-http and website-https are visitors of the website that those covers
imitate: innocent traffic, to which the covers are compared. There is a data set
for each way: loads-tor.parquet.

A visit that fails, or during which the emulated links were late by more than
1 ms on average, is made again, up to five times in all. Visits that still fail
are dropped. The same command continues a run that was ended, and makes the
dropped visits again. Needs root, chromium, node and npm.`,
		Example: `  heddle lab sites --out sites.json
  heddle lab collect --sites sites.json --visits 20 --paths 3 --schedule weighted --every 100ms --out split.parquet --plain plain.parquet
  heddle lab sites --monitored 20 --unmonitored 0 --out twenty.json
  heddle lab collect --cloud pages --defence none,pieces,pad-pow2 --sites twenty.json --visits 40 --out pages.parquet
  heddle lab collect --over tor,http,website-http --website dist/site-docs.db --sites twenty.json --visits 10 --out loads.parquet`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			for needing, needed := range map[string]string{"website": "over", "captures": "over", "keep": "over", "defence": "cloud"} {
				if cmd.Flags().Changed(needing) && !cmd.Flags().Changed(needed) {
					return cli.Usage(&path.Error{What: "--" + needing, Why: "it says nothing without --" + needed, Hint: "add --" + needed + ", or leave it out"})
				}
			}
			if err := cmp.Or(known("cloud", strings.Fields(f.Cloud), collect.CloudPages, collect.CloudSites),
				known("defence", f.Defence, config.Choices("defences")...), known("over", f.Over, collect.DisguiseWays()...)); err != nil {
				return err
			}
			o := collect.Options{Visits: f.Visits, Paths: f.Paths, Schedule: []string{"--schedule", f.Schedule, "--every", f.Every},
				Out: f.Out, Plain: f.Plain, Jobs: f.Jobs, Seed: f.Seed, Talk: cmd.ErrOrStderr(), DryRun: f.DryRun}
			if o.Sites, err = collect.ReadSites(f.Sites); err != nil {
				return err
			}
			if o.Heddle, err = os.Executable(); err != nil {
				return err
			}
			if f.Cloud != "" {
				return several(cmd, o, f.JSON, func() ([]collect.Summary, error) {
					return collect.RunCloud(cmd.Context(), collect.CloudOptions{Options: o, Cloud: f.Cloud, Defences: f.Defence})
				})
			}
			if len(f.Over) > 0 {
				return several(cmd, o, f.JSON, func() ([]collect.Summary, error) {
					return collect.RunDisguise(cmd.Context(), collect.DisguiseOptions{Options: o, Ways: f.Over, Website: f.Website, Keep: f.Keep, Captures: f.Captures})
				})
			}
			s, err := collect.Run(cmd.Context(), o)
			if err != nil {
				goesOn(o.Talk, s)
				return err
			}
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), s)
			}
			return printCollected(cmd, s, o.DryRun)
		},
	}
	bind.Flags(cmd, &f)
	_ = cmd.MarkFlagRequired("sites")
	_ = cmd.MarkFlagRequired("out")
	for _, name := range []string{"paths", "schedule", "every", "plain"} {
		cmd.MarkFlagsMutuallyExclusive("cloud", name, "over")
	}
	return cmd
}

// known refuses a word of a flag that is none of all.
func known(flag string, words []string, all ...string) error {
	for _, word := range words {
		if !slices.Contains(all, word) {
			return cli.Usage(&path.Error{What: "--" + flag + " " + word, Why: "there is none such", Hint: "one of " + strings.Join(all, ", ")})
		}
	}
	return nil
}

// goesOn says that a collection can be continued.
func goesOn(talk io.Writer, s collect.Summary) {
	if s.Made > 0 {
		fmt.Fprintf(talk, "%d visits were made; the same command goes on from here\n", s.Made)
	}
}

// several collects several data sets, and prints what came of each.
func several(cmd *cobra.Command, o collect.Options, asJSON bool, run func() ([]collect.Summary, error)) error {
	all, err := run()
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
