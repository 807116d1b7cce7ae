package quicprobe

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"heddle/internal/text"
)

// scheduleName is the recommended schedule. It did best against the attacks tried (CoMPS, section 5.1.1 and figure 7a).
const scheduleName = "weighted"

// advise draws conclusions from the report.
func advise(r *Report) Advice {
	a := Advice{Flags: []string{}, Words: []string{}}
	say := func(format string, args ...any) { a.Words = append(a.Words, fmt.Sprintf(format, args...)) }
	if r.Vanished != "" {
		say("The server vanished during this step: %s. Changes of the client's address may have ended its program, and so the sessions of others. Do not split sessions with this server until another probe has shown that it lives on.", r.Vanished)
		return a
	}
	if r.NewPort == nil {
		say("Nothing is known of changes, so there is nothing to recommend.")
		return a
	}
	port := r.NewPort.Survived
	switch {
	case !r.splits() && !port:
		say("Do not split sessions with this server: it does not follow a client to a new address or port.")
	case !r.splits():
		say("Do not split sessions between addresses: the server follows to a new port only. Paths that leave through one exit address work, and so do paths of the kind ports:.")
	case r.NewAddress == nil:
		say("The server follows to a new port, so paths of the kind ports: work. Probe with two paths (--via) before you split between addresses.")
	default:
		say("The server follows to a new port and to a new address.")
	}
	forbids(r, say)
	if !r.splits() && !port {
		return a
	}
	if r.PathsAtOnce == 0 {
		say("Nothing is known of more than one change.")
		return a
	}
	if r.PathsAtOnce == 1 {
		say("One change works, but not two in turn: give it one path, and change only when that path is lost.")
		a.Paths, a.Every = 1, "none"
		return a
	}
	a.Split, a.Schedule, a.Paths = true, scheduleName, r.PathsAtOnce
	if n := len(r.Rotations); n > 0 && !r.Rotations[n-1].Held {
		say("Give it %d paths at the most: of %d, %s.", r.PathsAtOnce, r.Rotations[n-1].Paths, r.Rotations[n-1].Why)
	}
	a.period(r, say)
	if !a.Split {
		return a
	}
	a.beginning(r.Early, say)
	a.Flags = []string{"--schedule", a.Schedule, "--every", a.Every}
	return a
}

// forbids warns of a server that follows changes although it announces that it does not.
func forbids(r *Report, say func(string, ...any)) {
	if !r.Parameters.DisableActiveMigration {
		return
	}
	if r.splits() {
		say("It forbids migration (disable_active_migration), and follows all the same: it may stop doing so.")
		return
	}
	say("It says so itself (disable_active_migration).")
}

// period recommends how often to change, and what reduces the cost.
func (a *Advice) period(r *Report, say func(string, ...any)) {
	t := r.Throughput
	a.Every = "100ms"
	if t == nil || len(t.Cases) == 0 {
		say("Nothing was measured of its speed; changing every 100 ms is the default.")
		return
	}
	change, best := t.Cases[0].Change, t.HoldsPort
	if change == changeAddress {
		best = t.HoldsAddress
	}
	var kept Case
	for _, c := range t.Cases {
		if !c.Survived {
			say("A session does not survive a new %s every %s: %s.", c.Change, c.Every, c.Why)
		} else if c.Change == change && c.Ratio > kept.Ratio {
			kept = c
		}
	}
	switch {
	case best != "":
		a.Every = best
		say("A download keeps at least nine tenths of its speed when it changes every %s.", best)
	case kept.Ratio == 0:
		a.Split, a.Every, a.Schedule, a.Flags = false, "", "", []string{}
		say("Do not split sessions with this server: at no period does a download go on when it changes.")
		return
	default:
		a.Every = kept.Every
		say("No period keeps nine tenths of a download's speed: every %s keeps %s, which is the most.", kept.Every, text.Percent(kept.Ratio))
		if change == changeAddress {
			say("`--every auto` may keep more: it sends one packet first after a change, and makes units so long that changes cost a twelfth of the time.")
		}
	}
	switch r.Distrusts {
	case distrustsAddresses:
		a.Settle = t.Settle
		say("The server starts slowly again after a new address, but not after a new port: paths that leave through one exit cost less (%s).", cmp.Or(exits(r), "see --stun"))
	case distrustsChanges:
		a.Settle = t.Settle
		say("The server starts slowly again after each change, be it of the port alone: what helps is to change less often.")
	}
	if best == "" {
		a.Settle = t.Settle
	}
	a.Settle = a.Settle.Round(10 * time.Millisecond)
	if every, err := time.ParseDuration(a.Every); err == nil && a.Settle <= every {
		a.Settle = 0 // the first change comes later anyway
	}
	if a.Settle > 0 {
		say("It takes a download %v to come to speed: change nothing before that.", a.Settle)
	}
}

// beginning warns of a server that does not survive changes of a young session.
func (a *Advice) beginning(e *Early, say func(string, ...any)) {
	if e == nil || e.Survived {
		return
	}
	a.Settle = max(a.Settle, e.Settled)
	say("A session that changes every %s from its beginning on does not always survive (%s): change nothing in its first %v.", e.Every, e.Why, e.Settled)
}

// exits names the paths that share an exit.
func exits(r *Report) string {
	var out []string
	for _, names := range oneExit(r.Paths) {
		out = append(out, strings.Join(names, " and "))
	}
	return strings.Join(out, "; ")
}
