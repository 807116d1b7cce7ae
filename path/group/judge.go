package group

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"heddle/path"
)

// Verdict is the result of [Group.Judge].
type Verdict struct {
	// Usable holds, for each counted member, whether it may carry packets. Enough reports whether these are enough to send.
	Usable []bool
	Enough bool
	Heard  time.Time // when the server was last heard over any member

	healthy int
	states  []path.State
}

// Need returns the number of healthy members required to send.
func (g *Group) Need() int {
	return g.quorum.Need()
}

// Judge updates the health of each member, and decides which are usable and whether they are enough. Calls must not overlap.
func (g *Group) Judge(now time.Time) Verdict {
	var latest, second time.Time // when members were last heard, to judge each against the others
	for _, m := range g.Members {
		if h := m.Health.LastHeard(); h.After(latest) {
			latest, second = h, latest
		} else if h.After(second) {
			second = h
		}
	}
	v := Verdict{Heard: latest, states: make([]path.State, len(g.Members))}
	for i, m := range g.Members {
		others := latest
		if m.Health.LastHeard().Equal(latest) {
			others = second
		}
		v.states[i] = m.Health.Judge(now, others)
		if v.states[i] != m.told {
			m.told = v.states[i]
			level := slog.LevelInfo
			if v.states[i] == path.Unproven {
				level = slog.LevelDebug // every path of every session starts so
			}
			_, why := m.Health.State()
			g.o.Log.Log(context.Background(), level, "path is "+string(v.states[i]), "session", g.o.Session, "path", m.Spec.Name, "why", why)
		}
	}
	v.Usable = Usable(v.states[:g.o.Counted], g.Need(), !g.proved)
	for _, u := range v.Usable {
		if u {
			v.healthy++
		}
	}
	v.Enough = v.healthy >= g.Need()
	return v
}

// Tell publishes a verdict that took effect in log and status. It reports whether packets may leave for the first time.
func (g *Group) Tell(v Verdict) (first bool) {
	why := ""
	if !v.Enough {
		why = g.explain(v)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	first = v.Enough && !g.quorum.Ran()
	turned := g.quorum.Set(v.healthy)
	switch {
	case v.Enough && turned:
		g.o.Log.Info("running", "session", g.o.Session, "paths", v.healthy)
	case !v.Enough && (turned || why != g.why):
		g.o.Log.Warn("nothing is sent: "+why, "session", g.o.Session)
	}
	g.why = why
	return first
}

// explain names the missing members.
func (g *Group) explain(v Verdict) string {
	var parts []string
	for i, m := range g.Members[:len(v.Usable)] {
		if v.Usable[i] {
			continue
		}
		_, why := m.Health.State()
		if why == "" {
			why = unheard
		}
		parts = append(parts, fmt.Sprintf("%s is %s (%s)", m.Spec.Name, v.states[i], why))
	}
	return fmt.Sprintf("%d of %d required paths healthy; %s", v.healthy, g.Need(), strings.Join(parts, ", "))
}

const unheard = "nothing heard yet" // why a path is unproven

// Usable decides which paths may carry packets: those that are up and, if fewer than need, suspect ones too. With trusting,
// the server cannot be probed: an unproven path counts as up, as only use can show whether it works.
func Usable(states []path.State, need int, trusting bool) []bool {
	usable := make([]bool, len(states))
	count := 0
	for i, s := range states {
		if s == path.Up || trusting && s == path.Unproven {
			usable[i] = true
			count++
		}
	}
	// If no path hears the server, the server may be the cause, so all suspect paths are treated alike.
	silence := trusting && !slices.Contains(states, path.Up) && !slices.Contains(states, path.Unproven)
	for i, s := range states {
		if (count < need || silence) && s == path.Suspect {
			usable[i] = true
			count++
		}
	}
	return usable
}
