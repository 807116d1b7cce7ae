package bft

import (
	"context"
	"fmt"
	"log/slog"

	cmtlog "github.com/cometbft/cometbft/libs/log"
)

// logger passes CometBFT's log to slog, one level lower. It stops the replica if the log shows that CometBFT gave up.
type logger struct {
	to   *slog.Logger
	fail context.CancelCauseFunc
}

// endings are the messages that CometBFT v1.0.1 then logs (internal/consensus/state.go, node/setup.go).
var endings = map[string]bool{"CONSENSUS FAILURE!!!": true, "State sync failed": true, "Failed to bootstrap node with new state": true,
	"Failed to store last seen commit": true, "Failed to switch to block sync": true}

func (l logger) Debug(string, ...any) {}

func (l logger) Info(message string, with ...any) { l.to.Debug(message, with...) }

func (l logger) Error(message string, with ...any) {
	l.to.Warn(message, with...)
	if !endings[message] {
		return
	}
	for i := 0; i+1 < len(with); i += 2 {
		if with[i] == "err" {
			l.fail(failure(fmt.Sprint(with[i+1])))
			return
		}
	}
	l.fail(failure(message))
}

func (l logger) With(with ...any) cmtlog.Logger { return logger{l.to.With(with...), l.fail} }
