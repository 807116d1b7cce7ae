package demo

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/cli"
	"heddle/experiments/demo"
	"heddle/lab"
)

// Pseudonym is `heddle pseudonym demo`.
func Pseudonym() *cobra.Command {
	var o demo.CloudOptions
	var asJSON bool
	command := &cobra.Command{
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
			if o.Heddle, err = os.Executable(); err != nil {
				return err
			}
			o.Talk = cmd.ErrOrStderr()
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
			if asJSON {
				return cli.WriteJSON(cmd.OutOrStdout(), result)
			}
			out := cmd.OutOrStdout()
			if err := result.WriteText(out); err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "\nThe page: %s\nIn detail: %s\nThe captures: %s\n", result.Page, result.Details, result.Captures)
			return err
		},
	}
	command.Flags().StringVar(&o.Dir, "out", "heddle-demo-pseudonym", "`DIR` for the pages and the captures")
	command.Flags().BoolVar(&o.Loopback, "loopback", false, "use loopback addresses also where a world is possible")
	command.Flags().BoolVar(&o.Terminal, "terminal", false, "use curl also where there is Chromium")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}
