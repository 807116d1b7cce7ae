// Command heddle controls what each network sees of your traffic.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"heddle/cmd/heddle/internal/cli"
	"heddle/path"
)

func main() {
	enterLab()
	path.GuardProcess()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, newRootCommand(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop() // a second signal ends the process at once
	path.Settle()
	os.Exit(code)
}
