package main

import (
	"github.com/spf13/cobra"

	"heddle/cmd/heddle/demo"
	"heddle/cmd/heddle/doctor"
	labcmd "heddle/cmd/heddle/lab"
	"heddle/lab"
)

// What needs network namespaces, or asks how Linux is set up.

func doctorCommand() *cobra.Command        { return doctor.Command() }
func demoCommand() *cobra.Command          { return demo.Command() }
func pseudonymDemoCommand() *cobra.Command { return demo.Pseudonym() }
func labCommand() *cobra.Command           { return labcmd.Command() }

func enterLab() { lab.MaybeEnter() }
