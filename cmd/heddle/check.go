package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"heddle/config"
)

func newCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
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
			if asJSON {
				return checkJSON(cmd.OutOrStdout(), args[0], problems)
			}
			out := cmd.OutOrStdout()
			printProblems(out, problems)
			if wrong := problems.Errors(); len(wrong) > 0 {
				return unusable(args[0], wrong)
			}
			fmt.Fprintf(out, "%s can be used: %s, %s, %s, %s\n", args[0], count(len(c.Ups), "tunnel"), count(len(c.Splits), "relay"),
				count(len(c.Serves)+len(c.Dials), "stream"), count(len(problems), "warning"))
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the problems as JSON")
	return cmd
}

func checkJSON(out io.Writer, file string, problems config.Problems) error {
	usable := len(problems.Errors()) == 0
	answer := struct {
		File     string          `json:"file"`
		Usable   bool            `json:"usable"`
		Problems config.Problems `json:"problems"`
	}{file, usable, append(config.Problems{}, problems...)}
	if err := writeJSON(out, answer); err != nil {
		return err
	}
	if !usable {
		return unusable(file, problems.Errors())
	}
	return nil
}

func unusable(file string, wrong config.Problems) error {
	return usageError{&hintError{fmt.Errorf("%s cannot be used: %s", file, count(len(wrong), "error")),
		"mend what is shown above, and look again with `heddle check " + file + "`"}}
}

// printProblems prints each with its line, a caret under the place, and what to do about it.
func printProblems(w io.Writer, problems config.Problems) {
	for _, p := range problems {
		fmt.Fprintf(w, "%s\n%s", p, p.Excerpt())
		if p.Hint != "" {
			fmt.Fprintf(w, "  hint: %s\n", p.Hint)
		}
		fmt.Fprintln(w)
	}
}

// count says how many, in words that agree: "1 error", "2 errors".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func writeJSON(w io.Writer, answer any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(answer)
}
