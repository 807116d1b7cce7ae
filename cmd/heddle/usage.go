package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Where a command's usage line goes on with flags.
var flagsInUse = regexp.MustCompile(`^--[a-z]| --[a-z]`)

// argumentsError says what a command takes and what it got, in place of Cobra's counts.
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

// missingFlags names the flags that a command needs and did not get, each with what belongs behind it.
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

// flagError says what a flag's value should be, in place of what the parser of numbers said.
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
	return fmt.Errorf("--%s %q: %s", bad.GetFlag().Name, bad.GetValue(), why)
}
