package bft

import (
	"context"
	"fmt"
	"log/slog"

	cmtlog "github.com/cometbft/cometbft/libs/log"
)

// logger passes CometBFT's log to slog, one level lower. If CometBFT gives up, which only its log says, the replica stops.
type logger struct {
	to   *slog.Logger
	fail context.CancelCauseFunc
}

// endings are what CometBFT v1.0.1 writes then (internal/consensus/state.go, node/setup.go).
var endings = map[string]bool{"CONSENSUS FAILURE!!!": true, "State sync failed": true, "Failed to bootstrap node with new state": true,
	"Failed to store last seen commit": true, "Failed to switch to block sync": true}

// Debug is of CometBFT's Logger.
func (l logger) Debug(string, ...any) {}

// Info is of CometBFT's Logger.
func (l logger) Info(message string, with ...any) { l.to.Debug(message, with...) }

// Error is of CometBFT's Logger.
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

// With is of CometBFT's Logger.
func (l logger) With(with ...any) cmtlog.Logger { return logger{l.to.With(with...), l.fail} }
