package manual

import (
	"os"

	"github.com/spf13/cobra"
)

// Command returns the hidden command that writes the man pages and the reference of a program. newRoot must return new
// commands at each call. For source and files see [WritePages].
func Command(program string, newRoot func() *cobra.Command, source, files string) *cobra.Command {
	var dir, reference string
	cmd := &cobra.Command{
		Use:    "man",
		Short:  "Write the man pages and the reference",
		Hidden: true,
		Long: `Man writes a man page of each command to a directory, or all commands as one
Markdown page. It is for those who build packages.`,
		Example: "  " + program + " man --dir dist/man\n  " + program + " man --reference reference.md",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if reference != "" {
				if err := os.WriteFile(reference, []byte(Reference(newRoot())), 0o644); err != nil {
					return err
				}
			}
			if dir == "" {
				return nil
			}
			root := newRoot()
			root.InitDefaultCompletionCmd() // if the program has no completion command of its own
			return WritePages(root, dir, source, files)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write a man page of each command to `DIR`")
	cmd.Flags().StringVar(&reference, "reference", "", "write all commands as Markdown to `FILE`")
	cmd.MarkFlagsOneRequired("dir", "reference")
	return cmd
}
