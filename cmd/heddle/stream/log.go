package stream

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// sessionLog passes on failures and recoveries of sessions. It drops what ends with the command.
type sessionLog struct {
	slog.Handler
	over *atomic.Bool
}

// newLog returns a log over the default one, which quiet silences.
func newLog() (log *slog.Logger, quiet func()) {
	l := sessionLog{slog.Default().Handler(), new(atomic.Bool)}
	return slog.New(l), func() { l.over.Store(true) }
}

// quietly returns a context that ends with ctx, after quiet was called.
func quietly(ctx context.Context, quiet func()) (context.Context, func()) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		quiet()
		cancel()
	})
	return inner, func() {
		stop()
		quiet()
		cancel()
	}
}

// Enabled reports false once the command ends.
func (l sessionLog) Enabled(ctx context.Context, level slog.Level) bool {
	return !l.over.Load() && l.Handler.Enabled(ctx, level)
}

// Handle drops the first start of a path, and the end of a session, which its user reports.
func (l sessionLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "session failed" {
		return nil
	}
	if r.Level < slog.LevelWarn {
		again := false
		r.Attrs(func(a slog.Attr) bool {
			again = again || a.Key == "joins" && a.Value.Kind() == slog.KindInt64 && a.Value.Int64() > 1
			return !again
		})
		if !again {
			return nil
		}
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs returns a log that quiet silences too.
func (l sessionLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return sessionLog{l.Handler.WithAttrs(attrs), l.over}
}

// WithGroup returns a log that quiet silences too.
func (l sessionLog) WithGroup(name string) slog.Handler {
	return sessionLog{l.Handler.WithGroup(name), l.over}
}
