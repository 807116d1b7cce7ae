package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/netutil"
)

const (
	soakUsers = 8         // links at a time
	soakBytes = 1_000_000 // of each link
	// soakPause is between two links of a user. A bridge bounds the links of one address, and a link that its user left takes a place
	// for a while.
	soakPause = 2 * time.Second
)

// Soak has links of a bridge come and go, whose connections are short, and measures memory and descriptors of both ends each minute
// while they do. It is relative to the first minute.
func Soak(ctx context.Context, o BridgeOptions) (Report, error) {
	b, err := upBridged(ctx, "soak", o)
	if err != nil {
		return Report{}, err
	}
	err = b.soak(ctx)
	return b.Report(), errors.Join(err, b.Down())
}

func (b *bridged) soak(ctx context.Context) error {
	server, file, err := b.bridge(ctx, bridgePort)
	if err != nil {
		return err
	}
	client, err := b.dial(ctx, file, "--max-bytes-per-connection", "100kB")
	if err != nil {
		return err
	}
	going, stop := context.WithCancelCause(ctx)
	var links atomic.Int64
	var work sync.WaitGroup
	for range soakUsers {
		work.Go(func() {
			for going.Err() == nil {
				if _, err := b.download(going, soakBytes); err != nil && going.Err() == nil {
					stop(err)
				}
				links.Add(1)
				_ = netutil.Sleep(going, soakPause)
			}
		})
	}
	defer work.Wait()
	defer stop(nil)
	for minute := 1; time.Duration(minute)*time.Minute <= b.Length; minute++ {
		select {
		case <-going.Done():
			return context.Cause(going)
		case <-time.After(time.Minute):
		}
		done := links.Swap(0)
		b.say("minute %d: %d links", minute, done)
		name := fmt.Sprintf("minute-%02d/", minute)
		b.Add(Figure{Case: name + "links", Metric: "links", Group: "links", Baseline: "minute-01/links"}, 0, float64(done))
		if err := errors.Join(b.usage(name+"bridge", "minute-01/bridge", server, 0), b.usage(name+"client", "minute-01/client", client, 0)); err != nil {
			return err
		}
	}
	return nil
}
