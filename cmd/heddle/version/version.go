// Package version is `heddle version`.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
)

// Release is the current or next release of this tree.
const Release = "0.1.0"

// Command is `heddle version`.
func Command() *cobra.Command {
	var f bind.Printing
	return bind.Flags(&cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Version prints the release, the commit that it was built from, and what built it.",
		Example: "  heddle version\n  heddle version --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionOf()
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "heddle %s (%s, %s)\n", v.Version, v.Commit, v.Go)
			return err
		},
	}, &f)
}

type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // "unknown" without git in the build; "+" marks a changed tree
	Go      string `json:"go"`
}

func versionOf() versionInfo {
	v := versionInfo{Version: Release, Commit: "unknown", Go: runtime.Version()}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	changed := ""
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	v.Commit += changed
	return v
}
