package lab

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/experiments/asim"
	"heddle/experiments/bench"
	"heddle/experiments/picture"
)

func newBenchMacheteCommand() *cobra.Command {
	cmd := benchCommand(bench.Machete(), "in under five minutes", "two, unequal, three, unlimited, message, death, regions/fast, setup", &cobra.Command{
		Use:   "machete",
		Short: "Streams over overlay nodes: the figures and tables of MACHETE",
		Long: `Measure streams over overlay nodes (heddle node, heddle stream) against plain
TCP, and the kernel's MPTCP over the same nodes.

"two" is throughput over two paths of 100 Mbit/s, relative to plain TCP over one
of them; "unequal" the same with delays of 10 and 75 ms each way, relative to
TCP over the slower one; "three" compares schemes of shares over three paths,
relative to none. "unlimited" has no limits; it is relative to TCP through a
forwarder of user space, beside which are such as copy less at a time, and such
as encrypt. "message" is the time until the answer to a message of 1 KB over a
session that is up, in round trips; "death" the longest time without a byte at
the server, with shares 2of3, while a node is killed.

"regions" is table III and figure 5: files of all sizes between Portugal and
Ireland, over nodes in eight regions, session set-up included, and files of 1 GB
in the first round alone; "setup" figure 6. With --pictures, figures 7 and 8
follow (see "heddle lab picture"), and with --graph tables I and II (see "heddle
lab asim --tables").

About an hour and a half for five rounds. A run in which the emulated links were
late by more than 1 ms on average is repeated. Needs root.`,
		Example: `  heddle lab bench machete --quick
  heddle lab bench machete --only two,unequal --json machete.json --plot machete.svg
  heddle lab bench machete --pictures pictures --graph as-rel.txt.gz`,
	})
	var f struct {
		Pictures string `flag:"pictures" help:"draw figures 7 and 8 into this <DIR>" complete:"dir"`
		Graph    string `flag:"graph" help:"compute tables I and II on this <FILE> of AS relationships" complete:"file"`
	}
	bind.Flags(cmd, &f)
	measure := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var tables func() error
		if f.Graph != "" { // check the file first, before an hour of measuring
			g, err := asim.Load(f.Graph)
			if err != nil {
				return err
			}
			tables = func() error { return (&labASim{Graph: f.Graph}).runTables(g, asim.Places(), cmd.OutOrStdout()) }
		}
		if err := measure(cmd, args); err != nil {
			return err
		}
		if f.Pictures != "" {
			if err := machetePictures(cmd, f.Pictures); err != nil {
				return err
			}
		}
		if tables == nil {
			return nil
		}
		fmt.Fprintln(cmd.OutOrStdout())
		return tables()
	}
	return cmd
}

// machetePictures draws what one path reveals of a large picture (figure 7) and of a small one (figure 8).
func machetePictures(cmd *cobra.Command, dir string) error {
	for _, f := range []struct {
		name  string
		bytes int
	}{{"figure-7", 6_000_000}, {"figure-8", 1_000_000}} {
		fmt.Fprintf(cmd.OutOrStdout(), "\n%s, %d bytes\n", f.name, f.bytes)
		if err := labPicture(cmd, picture.Options{Out: filepath.Join(dir, f.name), Bytes: f.bytes}, false); err != nil {
			return err
		}
	}
	return nil
}
