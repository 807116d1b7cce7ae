//go:build !linux

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"heddle/internal/errhint"
)

func doctorCommand() *cobra.Command {
	return onlyLinux("doctor", "Say what this machine can do", "`heddle check FILE` looks at a file, and `heddle status` at what runs")
}

func demoCommand() *cobra.Command {
	return onlyLinux("demo", "Show what splitting does", "run it in a virtual machine")
}

func pseudonymDemoCommand() *cobra.Command {
	return onlyLinux("pseudonym demo", "Show what a network sees of visits by pseudonyms", "run it in a virtual machine")
}

func labCommand() *cobra.Command {
	return onlyLinux("lab", "Run experiments in emulated networks", "run it in a virtual machine")
}

// onlyLinux is a command that only says that it needs Linux.
func onlyLinux(name, short, hint string) *cobra.Command {
	return &cobra.Command{Use: name[strings.LastIndexByte(name, ' ')+1:], Short: short, Long: short + ". It needs Linux.", Example: "  heddle " + name, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error { return errhint.NeedsLinux("heddle "+name, hint) }}
}

func enterLab() {}
