// Package bind gives commands the flags that they share, and completes what is typed behind them.
package bind

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagsOver keeps what flags say over what a file says: load replaces all, and the flags that were given are set again.
func FlagsOver(cmd *cobra.Command, load func() error) error {
	given := map[string][]string{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Changed {
			return
		}
		if list, ok := f.Value.(interface{ GetSlice() []string }); ok {
			given[f.Name] = slices.Clone(list.GetSlice())
		} else {
			given[f.Name] = []string{f.Value.String()}
		}
	})
	if err := load(); err != nil {
		return err
	}
	for name, values := range given {
		f := cmd.Flags().Lookup(name)
		if list, ok := f.Value.(interface{ Replace([]string) error }); ok {
			if err := list.Replace(values); err != nil {
				return err
			}
			continue
		}
		if err := f.Value.Set(values[0]); err != nil {
			return err
		}
	}
	return nil
}
