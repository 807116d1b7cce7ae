package main

import (
	"github.com/spf13/cobra"

	"heddle/internal/manual"
)

func newManCommand() *cobra.Command {
	return manual.Command("heddle", newRootCommand, "Heddle "+release, filesText)
}

// filesText is the part of heddle(1) about files.
const filesText = `/run/heddle, or $XDG_RUNTIME_DIR/heddle where not root
    The sockets of what runs, and what is needed to clean up after a crash.
    HEDDLE_RUN_DIR names another directory.`
