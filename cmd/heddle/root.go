package main

import "github.com/spf13/cobra"

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "heddle",
		Short:         "Decide what each network gets to see of you",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand()
	return root
}
