package split

import (
	"log/slog"
	"slices"
	"time"

	"heddle/observe"
	"heddle/path"
	"heddle/path/resolve"
	"heddle/schedule"
)

// Options configure one session, or each session of one relay.
type Options struct {
	Session  string                                 // name in status, logs and captures
	To       string                                 // the server as the user wrote it, HOST:PORT
	Via      []path.Spec                            // the paths; at least one
	Beside   []path.Spec                            // paths outside the schedule, which rules use or other paths ride
	Rules    []Rule                                 // tried in order before the schedule; the first match chooses the path
	Secret   func(name string) (path.Secret, error) // reads the secret of a named path; nil if no path has one
	Identity string                                 // file of this device's key, for overlay nodes; empty: this user's own
	Mark     uint32                                 // SO_MARK of every socket towards the server, or 0
	AskPaths bool                                   // ask for names over the paths, never this machine's resolver
	Schedule schedule.Config                        // chooses the path of the next unit
	// AtGaps lets a unit of time that is over continue until nothing passed for this long, for at most its own length; 0: not
	// at all.
	AtGaps   time.Duration
	Reorder  time.Duration                     // longest time to hold datagrams to restore their order; 0: none
	Drain    time.Duration                     // longest time to hold a QUIC client's datagrams after a switch; 0: none
	MinPaths int                               // healthy paths needed to send at all; 0 means 2, or all if fewer are given
	Degrade  bool                              // permit fewer healthy paths than MinPaths
	Tap      func(pathName string) observe.Tap // returns a path's tap, or nil; may be nil
	Log      *slog.Logger                      // messages for people; nil means [slog.Default]

	paths map[string]path.Path // shared by a relay's sessions; nil: the session makes its own
}

// Paths makes the paths by name: those of the schedule and those beside it.
func (o Options) Paths() (map[string]path.Path, error) {
	shared := path.Options{Mark: o.Mark, Secret: o.Secret, Identity: o.Identity}
	if o.AskPaths {
		shared.Lookup = resolve.Saved()
	}
	return path.NewSet(slices.Concat(o.Via, o.Beside), shared)
}

// members returns the paths that a session sends by: those of the schedule in order, then those that only rules use.
func (o Options) members() []path.Spec {
	out := slices.Clone(o.Via)
	for _, s := range o.Beside {
		if slices.ContainsFunc(o.Rules, func(r Rule) bool { return r.Use == s.Name }) {
			out = append(out, s)
		}
	}
	return out
}
