package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/experiments/picture"
	"heddle/internal/text"
	"heddle/path"
)

func newPictureCommand() *cobra.Command {
	f := struct {
		bind.Printing
		Out   string `flag:"out" help:"the <DIR> for the pictures, made where it is absent" complete:"dir"`
		Bytes int    `flag:"bytes" help:"about how large the picture is"`
	}{Out: "pictures", Bytes: 6_000_000}
	return bind.Flags(&cobra.Command{
		Use:   "picture",
		Short: "What one path has of a picture: figures 7 and 8 of MACHETE",
		Long: `Send an uncompressed picture over four overlay nodes, unlike in rate and delay,
and draw what an observer behind each of them could rebuild if the ciphers fell,
by schedule and by scheme of shares. Pixels that did not pass there are grey; of
shares, the bytes themselves are drawn.

It writes the original and one PNG for each way and node into --out, and prints
how many of the pixels are right. --bytes is for figure 8, in which a small
picture is split less well than a large one. Needs root.`,
		Example: `  heddle lab picture --out pictures
  heddle lab picture --out pictures --bytes 1000000 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return labPicture(cmd, picture.Options{Out: f.Out, Bytes: f.Bytes}, f.JSON)
		},
	}, &f)
}

func labPicture(cmd *cobra.Command, o picture.Options, asJSON bool) error {
	if o.Bytes < 10_000 || o.Bytes > 100_000_000 {
		return cli.Usage(&path.Error{What: "--bytes", Why: fmt.Sprintf("%d is not in 10000 to 100000000", o.Bytes), Hint: "the paper's were of 1 to 17 MB"})
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return &path.Error{What: "--out", Err: err}
	}
	var err error
	if o.Heddle, err = os.Executable(); err != nil {
		return err
	}
	o.Progress = cmd.ErrOrStderr()
	seen, err := picture.Run(cmd.Context(), o)
	if asJSON {
		return errors.Join(err, cli.WriteJSON(cmd.OutOrStdout(), seen))
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SCHEDULE\tSHARES\tOBSERVER\tOF THE STREAM\tPIXELS RIGHT\tPSNR\tPICTURE")
	for _, s := range seen {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%.1f dB\t%s\n", s.Schedule, s.Shares, s.Path, text.Percent(s.Stream), text.Percent(s.Right), s.PSNR, filepath.Join(o.Out, s.File))
	}
	return errors.Join(err, table.Flush())
}
