//go:build !linux

package node

import (
	"context"

	"heddle/config"
	"heddle/internal/errhint"
	"heddle/overlay/node"
)

func natHook(context.Context, config.Node, *node.Options) (func(), error) {
	return nil, errhint.NeedsLinux("mode nat", "offer --mode forward alone")
}
