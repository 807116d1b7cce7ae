package stream

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// sessionLog passes on what a person should know of sessions: what fails, and what comes back. What ends at the end of
// the command is no news.
type sessionLog struct {
	slog.Handler
	over *atomic.Bool
}

// newLog gives a log over the default one. It falls silent once quiet is called.
func newLog() (log *slog.Logger, quiet func()) {
	l := sessionLog{slog.Default().Handler(), new(atomic.Bool)}
	return slog.New(l), func() { l.over.Store(true) }
}

// quietly gives a context that ends with ctx, after quiet was called.
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

// Handle drops a path's first coming up, and the end of a session, which whoever uses the session tells of.
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

// WithAttrs keeps the silence.
func (l sessionLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return sessionLog{l.Handler.WithAttrs(attrs), l.over}
}

// WithGroup keeps the silence.
func (l sessionLog) WithGroup(name string) slog.Handler {
	return sessionLog{l.Handler.WithGroup(name), l.over}
}
