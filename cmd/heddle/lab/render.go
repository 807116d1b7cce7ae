package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/experiments/render"
	"heddle/internal/text"
	"heddle/path"
)

func newRenderCommand() *cobra.Command {
	f := struct {
		bind.Printing
		Loads int `flag:"loads" help:"load so many pages from the bridge, or a few more"`
	}{Loads: 1000}
	return bind.Flags(&cobra.Command{
		Use:   "render SITE",
		Short: "Compare in Chromium what a bridge shows of a recorded website",
		Long: `Load all pages of a recorded website in Chromium, from a bridge with the cover
http, which hides random bytes for visitors as it hides payload for clients.
Compare each with the website as it was recorded: what failed, what scripts and
the console reported, which elements there are, how large each picture is, and
the text.

A page is wrong if it has an error that the original lacks, or differs. The
command fails then. A thousand loads take ten minutes or more. Needs root and
Chromium.`,
		Example: "  heddle lab render dist/site-docs.db\n" +
			"  heddle lab render site.db --loads 50 --json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.Loads < 1 {
				return cli.Usage(&path.Error{What: "--loads", Why: fmt.Sprintf("%d loads show nothing", f.Loads), Hint: "1000 show errors that are rare"})
			}
			heddle, err := os.Executable()
			if err != nil {
				return err
			}
			website, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			rows, err := render.Run(cmd.Context(), render.Options{Heddle: heddle, Website: website, Loads: f.Loads, Talk: cmd.ErrOrStderr()})
			if err != nil {
				return err
			}
			if f.JSON {
				err = cli.WriteJSON(cmd.OutOrStdout(), rows)
			} else {
				err = printRendered(cmd, rows)
			}
			wrong := 0
			for _, r := range rows {
				wrong += r.Wrong()
			}
			if err == nil && wrong > 0 {
				err = &path.Error{What: args[0], Why: "Chromium found " + text.Count(wrong, "fault") + " that the original lacks", Hint: "leave the objects out that break, and see heddle disguise site check"}
			}
			return err
		},
	}, &f)
}

func printRendered(cmd *cobra.Command, rows []render.Row) error {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PAGE\tLOADS\tNEW ERRORS\tDIFFERENT")
	for _, r := range rows {
		other := fmt.Sprint(r.Other)
		if r.Varies {
			other = "the original varies"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\n", text.Printable(r.Page), r.Loads, r.Wrong()-r.Other, other)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		for _, e := range r.Sorted() {
			fmt.Fprintf(cmd.OutOrStdout(), "%s, %d times: %s\n", text.Printable(r.Page), r.Errors[e], text.Printable(e))
		}
	}
	return nil
}
