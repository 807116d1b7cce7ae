// Package check is `heddle check`: it reports the errors of a heddle.toml.
package check

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/config"
	"heddle/internal/text"
)

// Command is `heddle check`.
func Command() *cobra.Command {
	var f bind.Printing
	return bind.Flags(&cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong with a heddle.toml",
		Long: `Check reads a heddle.toml, and the WireGuard files that it names, and prints
everything that is wrong with them, each with its line and what to do about it.
It also warns of paths that could not send from this machine now. It starts
nothing.

The exit code is 0 where the file can be used, be it with warnings, and 2 where
it cannot.`,
		Example: `  heddle check heddle.toml
  heddle check heddle.toml --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, problems := config.CheckHere(args[0])
			if f.JSON {
				return checkJSON(cmd.OutOrStdout(), args[0], problems)
			}
			out := cmd.OutOrStdout()
			cli.PrintProblems(out, problems)
			if wrong := problems.Errors(); len(wrong) > 0 {
				return cli.Unusable(args[0], wrong)
			}
			fmt.Fprintf(out, "%s can be used: %s, %s, %s, %s\n", args[0], text.Count(len(c.Ups), "tunnel"), text.Count(len(c.Splits), "relay"),
				text.Count(len(c.Serves)+len(c.Dials), "stream"), text.Count(len(problems), "warning"))
			return nil
		},
	}, &f)
}

func checkJSON(out io.Writer, file string, problems config.Problems) error {
	usable := len(problems.Errors()) == 0
	answer := struct {
		File     string          `json:"file"`
		Usable   bool            `json:"usable"`
		Problems config.Problems `json:"problems"`
	}{file, usable, append(config.Problems{}, problems...)}
	if err := cli.WriteJSON(out, answer); err != nil {
		return err
	}
	if !usable {
		return cli.Unusable(file, problems.Errors())
	}
	return nil
}
