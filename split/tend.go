package split

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"heddle/internal/errhint"
	"heddle/path"
)

const (
	tendEvery     = 250 * time.Millisecond
	handshakeHold = 1500 * time.Millisecond // a handshake of the session's own may be under way so long
	answerHold    = time.Second             // and what confirms it, so long on the way back up
	reResolve     = 20 * time.Second
	probeFirst    = 500 * time.Millisecond
	probeLongest  = 15 * time.Second
)

// tend looks after the paths until ctx ends: opens what can be opened, follows addresses, judges health, asks silent
// paths, resolves the server's name again when nothing is heard.
func (f *Fan) tend(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, l := range f.lanes {
			f.tendLane(ctx, l)
		}
		f.mu.Lock()
		now := f.now()
		f.judge(now)
		lost := f.open && f.lost(now)
		f.mu.Unlock()
		f.ask(now)
		if lost {
			f.resolveAgain(ctx)
		}
	}
}

// tendLane opens the lane's flow where it has none, and again where it would not leave by its path any more.
func (f *Fan) tendLane(ctx context.Context, l *lane) {
	flow, _ := l.currentFlow()
	if c, ok := flow.(path.Checker); ok {
		if err := c.Check(); err != nil {
			f.log.Info("path changed: "+errhint.Reason(err), "session", f.o.Session, "path", l.spec.Name)
			l.health.Fail(errhint.Reason(err))
			l.shut()
			flow = nil
		}
	}
	if flow == nil {
		server := *f.server.Load()
		f.work.Go(func() { // a tunnel takes its time, and the other lanes need looking after
			if l.open(ctx, server) == nil {
				f.warnSharedObservers()
			}
		})
	}
}

// judge moves each lane's health on and decides which lanes may be used, and whether they are enough. f.mu is held.
func (f *Fan) judge(now time.Time) {
	var latest, second time.Time // when the lanes were last heard, to see each against the others
	for _, l := range f.lanes {
		if h := l.health.LastHeard(); h.After(latest) {
			latest, second = h, latest
		} else if h.After(second) {
			second = h
		}
	}
	states := make([]path.State, len(f.lanes))
	for i, l := range f.lanes {
		others := latest
		if l.health.LastHeard().Equal(latest) {
			others = second
		}
		states[i] = l.health.Judge(now, others)
		if states[i] != l.told {
			l.told = states[i]
			level := slog.LevelInfo
			if states[i] == path.Unproven {
				level = slog.LevelDebug // every path of every session begins so
			}
			_, why := l.health.State()
			f.log.Log(context.Background(), level, "path is "+string(states[i]), "session", f.o.Session, "path", l.spec.Name, "why", why)
		}
	}
	f.lastUp = latest
	f.usable = Usable(states[:len(f.o.Via)], f.need(), f.prober == nil)
	f.decide(states)
}

func (f *Fan) need() int {
	if f.o.Degrade {
		return 1
	}
	return f.o.MinPaths
}

// Usable says which paths may carry packets: those that are up, and where these are fewer than need, those in doubt too.
// Where nothing can be asked of the server (trusting), a path that was never heard counts as up: only use can tell.
func Usable(states []path.State, need int, trusting bool) []bool {
	usable := make([]bool, len(states))
	count := 0
	for i, s := range states {
		if s == path.Up || trusting && s == path.Unproven {
			usable[i] = true
			count++
		}
	}
	// Where the server is heard by no path at all, the doubt is about the server: its paths are as good as each other.
	silence := trusting && !slices.Contains(states, path.Up) && !slices.Contains(states, path.Unproven)
	for i, s := range states {
		if (count < need || silence) && s == path.Suspect {
			usable[i] = true
			count++
		}
	}
	return usable
}

// decide sets whether the session may send, and logs when that changes. f.mu is held.
func (f *Fan) decide(states []path.State) {
	healthy := 0
	for _, u := range f.usable {
		if u {
			healthy++
		}
	}
	enough := healthy >= f.need()
	why := ""
	if !enough {
		why = f.explainStop(healthy, states)
	}
	switch {
	case enough && !f.enough:
		f.log.Info("running", "session", f.o.Session, "paths", healthy)
	case !enough && (f.enough || why != f.stopWhy):
		f.log.Warn("nothing is sent: "+why, "session", f.o.Session)
	}
	f.enough, f.stopWhy = enough, why
	f.proved = f.proved || enough
}

func (f *Fan) explainStop(healthy int, states []path.State) string {
	var parts []string
	for i, l := range f.lanes[:len(f.usable)] {
		if f.usable[i] {
			continue
		}
		_, why := l.health.State()
		if why == "" {
			why = "nothing heard yet"
		}
		parts = append(parts, fmt.Sprintf("%s is %s (%s)", l.spec.Name, states[i], why))
	}
	return fmt.Sprintf("%d of %d required paths healthy; %s", healthy, f.need(), strings.Join(parts, ", "))
}

// lost reports whether the server seems to be gone from its address: something is sent, and nothing heard anywhere.
// f.mu is held.
func (f *Fan) lost(now time.Time) bool {
	if f.lastSent.IsZero() && !slices.ContainsFunc(f.lanes, func(l *lane) bool { return l.probe.wait > 0 }) {
		return false
	}
	return now.Sub(f.lastUp) > reResolve && now.Sub(f.since) > reResolve && now.Sub(f.resolved) > reResolve
}
