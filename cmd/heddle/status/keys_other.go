//go:build !linux

package status

import (
	"context"
	"io"
)

// untilQ returns a context that no key ends.
func untilQ(ctx context.Context, _ io.Reader) (_ context.Context, restore func()) {
	return ctx, func() {}
}
