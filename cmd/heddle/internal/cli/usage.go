package cli

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"heddle/internal/errhint"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagsInUse matches the first flag of a usage line.
var flagsInUse = regexp.MustCompile(`^--[a-z]| --[a-z]`)

// argumentsError says what a command takes and what it got, instead of Cobra's counts.
func argumentsError(cmd *cobra.Command, given []string, err error) error {
	if _, already := errors.AsType[usageError](err); already {
		return err
	}
	_, takes, _ := strings.Cut(cmd.Use, " ")
	if at := flagsInUse.FindStringIndex(takes); at != nil {
		takes = takes[:at[0]]
	}
	if takes == "" {
		takes = "no arguments"
	}
	got := "nothing"
	if len(given) > 0 {
		got = fmt.Sprintf("%q", given)
		got = got[1 : len(got)-1]
	}
	return fmt.Errorf("%s takes %s, and got %s", cmd.CommandPath(), takes, got)
}

// missingFlags lists the required flags that are missing, with their values' names.
func missingFlags(cmd *cobra.Command) error {
	var missing []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, required := f.Annotations[cobra.BashCompOneRequiredFlag]; required && !f.Changed {
			argument, _ := pflag.UnquoteUsage(f)
			missing = append(missing, "--"+f.Name+" "+argument)
		}
	})
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%s needs %s", cmd.CommandPath(), strings.Join(missing, ", "))
}

// flagError says what a flag's value should be, instead of the number parser's error.
func flagError(err error) error {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	why := map[string]string{"int": "it is not a whole number", "int64": "it is not a whole number", "float64": "it is not a number",
		"duration": "it is not a time, such as 100ms or 5m", "bool": "it is neither true nor false"}[bad.GetFlag().Value.Type()]
	if why == "" {
		why = errors.Unwrap(bad).Error()
	}
	return Hint(fmt.Errorf("--%s %q: %s", bad.GetFlag().Name, bad.GetValue(), why), errhint.Of(err))
}

// Finish makes every mistake in a command line a usage error with a hint.
func Finish(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, group
	}
	args := cmd.Args
	if args == nil {
		args = cobra.NoArgs
	}
	// Cobra checks arguments before required and exclusive flags, and its errors on those flags are not usage errors.
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return UsageBy(cmd, argumentsError(cmd, given, err))
		}
		return UsageBy(cmd, cmp.Or(missingFlags(cmd), cmd.ValidateFlagGroups()))
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return UsageBy(cmd, flagError(err)) })
	for _, c := range cmd.Commands() {
		Finish(c)
	}
}

// group is the action of a command that only has subcommands.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	cmd.SuggestionsMinimumDistance = 2
	err := fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return Usage(Hint(err, "did you mean "+strings.Join(near, " or ")+"?"))
	}
	return UsageBy(cmd, err)
}

// UsageBy makes an error a usage error, with a hint if it has none.
func UsageBy(cmd *cobra.Command, err error) error {
	if _, already := errors.AsType[usageError](err); err == nil || already {
		return err
	}
	if errhint.Of(err) != "" {
		return Usage(err)
	}
	return Usage(Hint(err, "see `"+cmd.CommandPath()+" --help`"))
}

// Hint adds a hint to an error.
func Hint(err error, hint string) error { return &hintError{err, hint} }

// hintError is an error with a hint.
type hintError struct {
	error
	hint string
}

func (e *hintError) HintText() string { return e.hint }

func (e *hintError) Unwrap() error { return e.error }
