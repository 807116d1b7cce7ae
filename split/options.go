package split

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"

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
	// Beside are paths outside the schedule, which rules use or other paths ride.
	Beside []path.Spec
	// Rules are tried in order before the schedule; the first that matches says the path.
	Rules []Rule
	// Secret reads what a path of a name must show to be let in; nil where none has any.
	Secret func(name string) (path.Secret, error)
	// Identity is the file of this device's key, for paths by overlay nodes; empty is this user's own.
	Identity string
	// Mark is the SO_MARK of every socket towards the server, or 0.
	Mark uint32
	// Schedule says which path the next unit takes.
	Schedule schedule.Config
	// AtGaps lets a unit of time that is over go on until nothing was sent or heard for so long, or its time has passed
	// once more; 0 ends it at once.
	AtGaps time.Duration
	// Reorder puts in order what arrives by several paths, and holds it so long at most; 0 holds nothing.
	Reorder time.Duration
	// MinPaths is how many healthy paths it takes to send at all. 0 means 2, or all where fewer than two were given.
	MinPaths int
	// Degrade permits fewer healthy paths than MinPaths.
	Degrade bool
	// Tap gives the tap of a path, or nil for none. It may be nil.
	Tap func(pathName string) observe.Tap
	// Log takes what a person should know; nil means [slog.Default].
	Log *slog.Logger

	paths map[string]path.Path // shared by the sessions of a relay; nil where a session makes its own
	moved func(netip.AddrPort) // hears where the server moved to; may be nil
}

// Paths makes the paths, by name: those of the schedule, and those beside it.
func (o Options) Paths() (map[string]path.Path, error) {
	return path.NewSet(slices.Concat(o.Via, o.Beside), path.Options{Mark: o.Mark, Secret: o.Secret, Identity: o.Identity})
}

// members are the paths that a session sends by: those of the schedule in its order, then those that only rules use.
func (o Options) members() []path.Spec {
	out := slices.Clone(o.Via)
	for _, s := range o.Beside {
		if slices.ContainsFunc(o.Rules, func(r Rule) bool { return r.Use == s.Name }) {
			out = append(out, s)
		}
	}
	return out
}
