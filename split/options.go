package split

import (
	"log/slog"

	"heddle/observe"
	"heddle/path"
	"heddle/schedule"
)

// Options say how one session, or each session of one relay, is split.
type Options struct {
	// Session names the session in status, logs and captures.
	Session string
	// To is the server as the user wrote it, HOST:PORT.
	To string
	// Via are the paths; at least one.
	Via []path.Spec
	// Mark is the SO_MARK of every socket towards the server, or 0.
	Mark uint32
	// Schedule says which path the next unit takes.
	Schedule schedule.Config
	// MinPaths is how many healthy paths it takes to send at all. 0 means 2, or all where fewer than two were given.
	MinPaths int
	// Degrade permits fewer healthy paths than MinPaths.
	Degrade bool
	// Tap gives the tap of a path, or nil for none. It may be nil.
	Tap func(pathName string) observe.Tap
	// Log takes what a person should know; nil means [slog.Default].
	Log *slog.Logger
}
