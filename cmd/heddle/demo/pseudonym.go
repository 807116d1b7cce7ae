package demo

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/experiments/demo"
	"heddle/lab"
)

// Pseudonym is `heddle pseudonym demo`.
func Pseudonym() *cobra.Command {
	f := struct {
		bind.Printing
		Out      string `flag:"out" help:"<DIR> for the pages and the captures"`
		Loopback bool   `flag:"loopback" help:"use loopback addresses also where a world is possible"`
		Terminal bool   `flag:"terminal" help:"use curl also where there is Chromium"`
	}{Out: "heddle-demo-pseudonym"}
	return bind.Flags(&cobra.Command{
		Use:   "demo",
		Short: "Show what a network sees of visits by pseudonyms, in a world of its own",
		Long: `Visit three sites of a cloud, and follow a link from one to another: first by
their names over plain HTTPS, then by pseudonyms. Show what an observer between
the client and the cloud saw of both: names in DNS and TLS, addresses, bytes,
and the names in the certificates that the servers show when it asks.

As root it lays a world of network namespaces, and an unmodified Chromium gets
the pseudonyms from the pages of the cloud's store. Without Chromium, or with
--terminal, "heddle pseudonym get" and curl take its place. Without root, or
with --loopback, loopback addresses stand in for networks, and a relay for the
observer. Nothing of this machine's network is touched, and everything is taken
away again. It takes about ten seconds.`,
		Example: `  sudo heddle pseudonym demo
  heddle pseudonym demo --loopback --out /tmp/heddle-demo-pseudonym
  heddle observe report heddle-demo-pseudonym/captures/pseudonyms`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			o := demo.CloudOptions{Dir: f.Out, Loopback: f.Loopback, Terminal: f.Terminal, Talk: cmd.ErrOrStderr()}
			if o.Heddle, err = os.Executable(); err != nil {
				return err
			}
			if err := lab.Supported(); err != nil && !o.Loopback {
				o.Loopback = true
				fmt.Fprintln(o.Talk, "over loopback addresses, since there can be no world here:", err)
			}
			if o.Loopback && !o.Terminal {
				o.Terminal = true
				fmt.Fprintln(o.Talk, "with curl, since Chromium would need a resolver of its own")
			} else if err := demo.BrowserSupported(); err != nil && !o.Terminal {
				o.Terminal = true
				fmt.Fprintln(o.Talk, "with curl, since Chromium cannot be used here:", err)
			}
			result, err := demo.RunCloud(cmd.Context(), o)
			if err != nil {
				return err
			}
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), result)
			}
			out := cmd.OutOrStdout()
			if err := result.WriteText(out); err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "\nThe page: %s\nIn detail: %s\nThe captures: %s\n", result.Page, result.Details, result.Captures)
			return err
		},
	}, &f)
}
