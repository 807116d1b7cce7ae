//go:build !linux

package up

import (
	"context"
	"io"

	"heddle/internal/errhint"
)

func startBackground(context.Context, string, io.Writer) error {
	return errhint.NeedsLinux("--background", "let the system's own supervisor start heddle up")
}

func leaveParent() {}
