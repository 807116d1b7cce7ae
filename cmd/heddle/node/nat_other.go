//go:build !linux

package node

import (
	"context"

	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/internal/errhint"
	"heddle/overlay/node"
)

func natHook(context.Context, config.Node, *runner.Runner, *node.Options) (func(), error) {
	return nil, errhint.NeedsLinux("mode nat", "offer --mode forward alone")
}
