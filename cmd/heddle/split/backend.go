package split

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/config"
	"heddle/path"
	"heddle/split"
	"heddle/split/backend"
	"heddle/split/kernel"
	"heddle/split/route"
)

// splitter is what runs a `heddle split` by one backend.
type splitter interface {
	Run(ctx context.Context) error
	Status() []split.Status
	Close() error
}

// relaySplitter is the relay, which Run closes.
type relaySplitter struct{ *split.Relay }

func (relaySplitter) Close() error { return nil }

// below is a backend below the socket, which has one session.
type below struct {
	session interface {
		Run(ctx context.Context) error
		Status() split.Status
		Close() error
	}
}

func (b below) Run(ctx context.Context) error { return b.session.Run(ctx) }
func (b below) Status() []split.Status        { return []split.Status{b.session.Status()} }
func (b below) Close() error                  { return b.session.Close() }

// openBackend starts the first backend of the list that this kernel does not refuse. Once it takes packets it says so.
func openBackend(ctx context.Context, s config.Split, o split.Options, talk io.Writer) (splitter, error) {
	for i, name := range s.Backend {
		if err := o.CheckBackend(name); err != nil {
			return nil, err
		}
		opened, err := openOne(ctx, name, s, o, talk)
		if err == nil || !errors.Is(err, kernel.ErrRefused) || i == len(s.Backend)-1 {
			return opened, err
		}
		fmt.Fprintf(talk, "%s: warning: %v; going on with backend %s, as told\n", s.SessionName(), err, s.Backend[i+1])
	}
	return nil, &path.Error{What: "--backend", Why: "none is given", Hint: "relay is the usual one"}
}

// openOne starts a backend. What a crash of the session left is taken back before, by all backends. Guards stay until that of
// the new one is in its place, so that nothing leaves in between; a relay has none.
func openOne(ctx context.Context, name string, s config.Split, o split.Options, talk io.Writer) (splitter, error) {
	if err := tellLeft(s.SessionName(), talk, name != "relay", Guarded...); err != nil {
		return nil, err
	}
	if name == "relay" {
		listen, err := listenAddress(s.Listen)
		if err != nil {
			return nil, cli.Usage(err)
		}
		r, err := split.NewRelay(ctx, split.RelayOptions{Options: o, Listen: listen, Idle: s.Idle, MaxSessions: s.MaxSessions})
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(talk, "%s: listening on %v for %s over %d paths\n", s.SessionName(), r.Addr(), s.To, len(o.Via))
		return relaySplitter{r}, nil
	}
	options := backend.Options{Options: o, Dir: control.Dir(), Ready: func() {
		fmt.Fprintf(talk, "%s: splitting what is sent to %s (backend %s) over %d paths\n", s.SessionName(), s.To, name, len(o.Via))
	}}
	if at, err := netip.ParseAddrPort(s.To); err == nil {
		options.Server = at
	}
	opened, err := openBelow(ctx, name, options, s.GSOOff)
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(slices.Clone(Guarded), func(other string) bool { return other == name })
	if err := tellLeft(s.SessionName(), talk, false, others...); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

func openBelow(ctx context.Context, name string, o backend.Options, gsoOff bool) (splitter, error) {
	if name == "route" {
		p, err := route.Open(ctx, o)
		if err != nil {
			return nil, err
		}
		return below{p}, nil
	}
	p, err := kernel.Open(ctx, kernel.Options{Options: o, GSOOff: gsoOff})
	if err != nil {
		return nil, err
	}
	return below{p}, nil
}

// Guarded are the backends that have a guard and a journal.
var Guarded = []string{"kernel", "route"}

// tellLeft takes back what a crash of the session left by these backends, and says so. The session's name is held.
func tellLeft(session string, talk io.Writer, keepGuards bool, backends ...string) error {
	lines, err := CleanBackends(session, keepGuards, backends...)
	for _, line := range lines {
		fmt.Fprintf(talk, "%s: a crash left this, taken back: %s\n", session, line)
	}
	return err
}

// CleanBackends takes back what a crash of the session left by these backends.
func CleanBackends(session string, keepGuards bool, backends ...string) (lines []string, err error) {
	for _, name := range backends {
		clean := kernel.Clean
		if name == "route" {
			clean = route.Clean
		}
		more, failed := clean(control.Dir(), session, keepGuards)
		lines, err = append(lines, more...), errors.Join(err, failed)
	}
	return lines, err
}
