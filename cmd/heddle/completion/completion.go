// Package completion is `heddle completion`: shell completion scripts.
package completion

import "github.com/spf13/cobra"

// Command is `heddle completion`.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the completion script of a shell",
		Long: `Completion prints a script that lets the shell complete Heddle's commands, flags
and their values: schedules, kinds of path, this machine's interfaces, and the
names of what runs.`,
		Example: `  source <(heddle completion bash)
  heddle completion zsh > "${fpath[1]}/_heddle"
  heddle completion fish > ~/.config/fish/completions/heddle.fish`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return root.GenBashCompletionV2(out, true)
		},
	}
}
