// Package man is `heddle man`: the man pages and the reference.
package man

import (
	"github.com/spf13/cobra"

	"heddle/cmd/heddle/version"
	"heddle/internal/manual"
)

// Command is `heddle man`.
func Command(root func() *cobra.Command) *cobra.Command {
	return manual.Command("heddle", root, "Heddle "+version.Release, FilesText)
}

// FilesText is the part of heddle(1) about files.
const FilesText = `/run/heddle, or $XDG_RUNTIME_DIR/heddle where not root
    The sockets of what runs, and what is needed to clean up after a crash.
    HEDDLE_RUN_DIR names another directory.`
