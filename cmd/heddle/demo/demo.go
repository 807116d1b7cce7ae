// Package demo is `heddle demo`.
package demo

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/experiments/demo"
	"heddle/lab"
	"heddle/observe"
	"heddle/path"
)

// Command is `heddle demo`.
func Command() *cobra.Command {
	f := struct {
		bind.Printing
		Out      string `flag:"out" help:"<DIR> for the page and the captures"`
		Large    int64  `flag:"large" help:"size of the large file, in bytes"`
		Loopback bool   `flag:"loopback" help:"use loopback addresses also where a world is possible"`
	}{Out: "heddle-demo", Large: 20 << 20}
	return bind.Flags(&cobra.Command{
		Use:   "demo",
		Short: "Show what each network sees, in a world of its own",
		Long: `Fetch pages and a large file with curl through "heddle up" over three networks,
then again with WireGuard alone over one of them and with no tunnel, and show
what each network saw of it.

As root it lays a world of network namespaces with a client, three access
networks, an unmodified wireguard-go server and a web server, and captures at
the routers. Without root it uses loopback addresses in place of networks, and
Heddle's own captures. Nothing of this machine's network is touched, and
everything is taken away again. It takes about a minute.`,
		Example: `  sudo heddle demo
  heddle demo --out /tmp/heddle-demo
  heddle observe report heddle-demo/captures/heddle`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			if f.Large < 1 {
				return cli.Usage(&path.Error{What: fmt.Sprintf("--large %d", f.Large), Why: "a file has a byte at least",
					Hint: "leave it out for 20 MiB"})
			}
			o := demo.Options{Dir: f.Out, Heddle: program, Large: f.Large, Loopback: f.Loopback, Talk: cmd.ErrOrStderr()}
			if err := lab.Supported(); err != nil && !o.Loopback {
				o.Loopback = true
				fmt.Fprintln(o.Talk, "over loopback addresses, since there can be no world here:", err)
			}
			result, err := demo.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), result)
			}
			return printDemo(cmd, result)
		},
	}, &f)
}

func printDemo(cmd *cobra.Command, r demo.Result) error {
	out := cmd.OutOrStdout()
	if err := observe.WriteText(out, r.Report, cli.TerminalWidth(out)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nThe page: %s\nThe captures: %s\nNext, a cloud whose sites no network sees: heddle pseudonym demo\n", r.Page, r.Captures)
	return err
}
