package split

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/path"
	"heddle/split"
)

// opened is a backend that takes packets, or will once it runs.
type opened struct {
	run    func(context.Context) error
	status func() []split.Status
	close  func() error
}

// openBackend starts the first backend of the list that this kernel accepts, and prints when it takes packets.
func openBackend(ctx context.Context, s config.Split, o split.Options, r *runner.Runner, talk io.Writer) (*opened, error) {
	for i, name := range s.Backend {
		if err := o.CheckBackend(name); err != nil {
			return nil, err
		}
		b, err := openOne(ctx, name, s, o, r, talk)
		if err == nil || !refused(err) || i == len(s.Backend)-1 {
			return b, err
		}
		fmt.Fprintf(talk, "%s: warning: %v; going on with backend %s, as told\n", s.SessionName(), err, s.Backend[i+1])
	}
	return nil, &path.Error{What: "--backend", Why: "none is given", Hint: "relay is the usual one"}
}

// openOne starts a backend. First it removes what a crash left, of all backends. Old guards stay until the new
// backend's is in place, so that no packet leaks in between; a relay has none.
func openOne(ctx context.Context, name string, s config.Split, o split.Options, r *runner.Runner, talk io.Writer) (*opened, error) {
	if err := tellLeft(s.SessionName(), talk, name != "relay", Guarded...); err != nil {
		return nil, err
	}
	if name == "relay" {
		listen, err := listenAddress(s.Listen)
		if err != nil {
			return nil, cli.Usage(err)
		}
		relay, err := split.NewRelay(ctx, split.RelayOptions{Options: o, Listen: listen, Idle: s.Idle, MaxSessions: s.MaxSessions})
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(talk, "%s: listening on %v for %s over %d paths\n", s.SessionName(), relay.Addr(), s.To, len(o.Via))
		tellLimit(talk, s, relay.Limit())
		r.Ready()
		return &opened{relay.Run, relay.Status, func() error { return nil }}, nil // Run closes it
	}
	b, err := openBelow(ctx, name, s, o, r, talk)
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(slices.Clone(Guarded), func(other string) bool { return other == name })
	if err := tellLeft(s.SessionName(), talk, false, others...); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// tellLimit prints what programs must know of the size of their datagrams.
func tellLimit(talk io.Writer, s config.Split, limit string) {
	if limit != "" {
		fmt.Fprintf(talk, "%s: %s\n", s.SessionName(), limit)
	}
}

// Guarded are the backends with a guard and a journal.
var Guarded = []string{"kernel", "route"}

// tellLeft removes what a crash of these backends left, and reports it. The caller holds the session's name.
func tellLeft(session string, talk io.Writer, keepGuards bool, backends ...string) error {
	lines, err := CleanBackends(session, keepGuards, backends...)
	for _, line := range lines {
		fmt.Fprintf(talk, "%s: a crash left this, taken back: %s\n", session, line)
	}
	return err
}
