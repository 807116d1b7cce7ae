package bft

import (
	"log/slog"

	cmtlog "github.com/cometbft/cometbft/libs/log"
)

// logger gives CometBFT's log to slog, a level lower: what it informs of is of no interest to who runs a board.
type logger struct{ to *slog.Logger }

func (l logger) Debug(string, ...any)              {}
func (l logger) Info(message string, with ...any)  { l.to.Debug(message, with...) }
func (l logger) Error(message string, with ...any) { l.to.Warn(message, with...) }
func (l logger) With(with ...any) cmtlog.Logger    { return logger{l.to.With(with...)} }
