package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/config"
	"heddle/internal/text"
)

// Unusable is the error of a file whose problems were printed.
func Unusable(file string, wrong config.Problems) error {
	return Usage(Hint(fmt.Errorf("%s cannot be used: %s", file, text.Count(len(wrong), "error")),
		"mend what is shown above, and look again with `heddle check "+file+"`"))
}

// PrintProblems prints each problem with its line, a caret under the place, and the hint.
func PrintProblems(w io.Writer, problems config.Problems) {
	for _, p := range problems {
		fmt.Fprintf(w, "%s\n%s", p, p.Excerpt())
		if p.Hint != "" {
			fmt.Fprintf(w, "  hint: %s\n", p.Hint)
		}
		fmt.Fprintln(w)
	}
}

// WriteJSON writes an answer as JSON.
func WriteJSON(w io.Writer, answer any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(answer)
}

// FileUnderFlags reads the file that args name, if they name one, as [Loaded] does. Flags that were given override its keys.
func FileUnderFlags[T any](cmd *cobra.Command, args []string, load func(string) (T, error), into *T) error {
	if len(args) == 0 {
		return nil
	}
	return bind.FlagsOver(cmd, func() error { return Loaded(cmd, args[0], load, into) })
}

// Loaded reads a file into a config, and prints its problems like heddle check.
func Loaded[T any](cmd *cobra.Command, file string, load func(string) (T, error), into *T) error {
	c, err := load(file)
	if problems, ok := errors.AsType[config.Problems](err); ok {
		PrintProblems(cmd.ErrOrStderr(), problems)
		if _, checkable := any(c).(config.Config); checkable {
			return Unusable(file, problems)
		}
		return Usage(Hint(fmt.Errorf("%s cannot be used: %s", file, text.Count(len(problems), "error")), "mend what is shown above"))
	}
	if err == nil {
		*into = c
	}
	return err
}
