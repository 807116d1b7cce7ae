package pt

import (
	"context"
	"log/slog"

	goptlib "gitlab.torproject.org/tpo/anti-censorship/pluggable-transports/goptlib"
)

// handler sends log records to the parent as LOG lines, which Tor writes to its own log. It ignores groups.
type handler struct{ attributes string }

// LogHandler returns a handler for the time of [Run].
func LogHandler() slog.Handler { return handler{} }

func (handler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (h handler) Handle(_ context.Context, r slog.Record) error {
	severity := goptlib.LogSeverityInfo
	switch {
	case r.Level >= slog.LevelError:
		severity = goptlib.LogSeverityError
	case r.Level >= slog.LevelWarn:
		severity = goptlib.LogSeverityWarning
	}
	line := r.Message + h.attributes
	r.Attrs(func(a slog.Attr) bool {
		line += attribute(a)
		return true
	})
	goptlib.Log(severity, line)
	return nil
}

func (h handler) WithAttrs(all []slog.Attr) slog.Handler {
	for _, a := range all {
		h.attributes += attribute(a)
	}
	return h
}

func (h handler) WithGroup(string) slog.Handler { return h }

func attribute(a slog.Attr) string {
	value := a.Value.Resolve().String()
	if a.Key == "error" {
		return ": " + value
	}
	return " " + a.Key + "=" + value
}
