package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"heddle/lab/peer"
	"heddle/path"
)

// withHeddle waits until the `heddle up` that start starts is up, calls use with its ready line, and ends it.
func (s *stage) withHeddle(ctx context.Context, start func() (*peer.Process, error), use func(said string) error) error {
	up, err := start()
	if err != nil {
		return err
	}
	const word = " is up: "
	if err := up.AwaitLog(ctx, word); err != nil {
		up.Stop()
		return &path.Error{What: "heddle up", Err: errors.Join(ctx.Err(), err)}
	}
	var said string
	for line := range strings.Lines(up.Log()) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, word) {
			said = line
		}
		if line == said || strings.HasPrefix(line, "claim: ") { // the rest is its log
			fmt.Fprintln(s.o.Talk, "  heddle:", line)
		}
	}
	used := use(said)
	if err := up.Interrupt(); err != nil && ctx.Err() == nil {
		return &path.Error{What: "heddle up", Why: up.Log(), Err: errors.Join(used, err)}
	}
	return used
}
