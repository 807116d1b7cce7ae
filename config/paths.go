package config

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"heddle/internal/errhint"
	"heddle/path"
	"heddle/schedule"
	"heddle/split"
)

// Options converts the settings to a session's options. The caller adds Session, To, Mark, Tap and Log. It fails with
// the first error, a [*path.Error] with a hint.
func (p Paths) Options() (split.Options, error) {
	for _, f := range p.findings() {
		if !f.warning {
			return split.Options{}, &path.Error{What: "--" + f.key, Why: f.what, Hint: f.hint}
		}
	}
	every, err := schedule.ParseEvery(p.Every)
	if err != nil {
		return split.Options{}, err
	}
	options := split.Options{
		Schedule: schedule.Config{Name: p.Schedule, Every: every, Settle: p.Settle, Alpha: p.Alpha, Seed: p.Seed},
		AtGaps:   p.AtGaps,
		Reorder:  p.Reorder,
		Drain:    p.Drain,
		MinPaths: p.MinPaths,
		Degrade:  p.Degrade,
	}
	if options.Via, err = parseSpecs(p.Via); err != nil {
		return split.Options{}, err
	}
	if options.Beside, err = parseSpecs(p.Path); err != nil {
		return split.Options{}, err
	}
	options.Secret, options.Identity = secrets(p.Secret), p.Identity
	options.Rules, err = p.splitRules()
	return options, err
}

func parseSpecs(texts []string) (specs []path.Spec, err error) {
	for _, text := range texts {
		spec, err := path.ParseSpec(text)
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// nameOf is the name of a path, NAME=KIND:ARG or NAME alone.
func nameOf(text string) string {
	name, _, _ := strings.Cut(text, "=")
	return name
}

func namesOf(texts []string) (names []string) {
	for _, text := range texts {
		names = append(names, nameOf(text))
	}
	return names
}

// finding is a problem with a value, before its place is known.
type finding struct {
	key     string
	index   int // element of a list, or -1 for the whole value
	what    string
	hint    string
	warning bool
}

type findings []finding

func (f *findings) say(key string, index int, what, hint string) {
	*f = append(*f, finding{key: key, index: index, what: what, hint: hint})
}

func (f *findings) add(key string, index int, err error) {
	if err != nil {
		what, hint := explain(err)
		f.say(key, index, what, hint)
	}
}

// maxHold bounds how long a datagram is held: more than the round trips and queues of usable paths.
const maxHold = time.Second

func (p Paths) findings() findings {
	found := p.viaFindings()
	add := func(key, what, hint string) { found.say(key, -1, what, hint) }
	found.add("schedule", -1, oneOf("schedule", p.Schedule, schedule.Names()))
	_, err := schedule.ParseEvery(p.Every)
	found.add("every", -1, err)
	if !(p.Alpha > 0) || math.IsInf(p.Alpha, 0) {
		add("alpha", fmt.Sprintf("%v is not above 0", p.Alpha), "1 draws all weights alike; larger is more even, smaller less")
	}
	for _, wait := range []struct {
		key string
		d   time.Duration
	}{{"settle", p.Settle}, {"at-gaps", p.AtGaps}} {
		if wait.d < 0 {
			add(wait.key, fmt.Sprintf("%v is less than 0", wait.d), "a time such as 1s or 5ms; 0s is none")
		}
	}
	for _, hold := range []struct {
		key  string
		d    time.Duration
		hint string
	}{{"reorder", p.Reorder, "about what a line's queue takes to drain, such as 100ms"},
		{"drain", p.Drain, "more than a round trip and what a line's queue takes to drain, such as 250ms"}} {
		if hold.d < 0 || hold.d > maxHold {
			add(hold.key, fmt.Sprintf("%v is not in 0s to %v", hold.d, maxHold), hold.hint)
		}
	}
	switch {
	case p.MinPaths < 0:
		add("min-paths", fmt.Sprintf("%d is less than 0", p.MinPaths), "0 means 2, or all where fewer are given")
	case len(p.Via) > 0 && p.MinPaths > len(p.Via):
		add("min-paths", fmt.Sprintf("%d healthy paths are asked for, of %d that are given", p.MinPaths, len(p.Via)),
			"give more paths with via, or ask for fewer")
	}
	if info, err := os.Stat(p.Capture); p.Capture != "" && err == nil && !info.IsDir() {
		add("capture", fmt.Sprintf("%q is not a directory", p.Capture), "name a directory; it is made where it is absent")
	}
	return found
}

func (p Paths) viaFindings() findings {
	if len(p.Via) == 0 {
		return findings{{key: "via", index: -1, what: "no path is given", hint: "write NAME=KIND:ARG, for example home=if:eth0"}}
	}
	c := checkPaths(p.Path, p.Via)
	if !slices.ContainsFunc(c.findings, func(f finding) bool { return !f.warning }) {
		c.add("via", -1, c.carry(p.senders(), cmp.Or(p.Needs, path.Datagrams), "this session"))
	}
	return append(c.findings, p.ruleFindings(c.names)...)
}

// pathChecker checks paths one by one.
type pathChecker struct {
	specs  []path.Spec
	names  map[string]bool
	places map[string]string // place to the name of its path
	findings
}

func checkPaths(beside, via []string) *pathChecker {
	c := &pathChecker{names: map[string]bool{}, places: map[string]string{}}
	for i, text := range beside {
		c.check("path", i, text)
	}
	for i, text := range via {
		c.check("via", i, text)
	}
	return c
}

func (c *pathChecker) check(key string, index int, text string) {
	spec, err := path.ParseSpec(text)
	if err == nil {
		alone := path.Options{}
		if spec.Base != "" {
			alone.Base = path.NewSystem(0)
		}
		_, err = path.New(spec, alone) // fails only if it can never work
	}
	if err != nil {
		c.add(key, index, err)
		c.names[nameOf(text)] = true // so that a rule with this name is not reported too
		return
	}
	if c.names[spec.Name] {
		c.say(key, index, fmt.Sprintf("two paths are called %s", spec.Name), "give each path a name of its own")
	}
	c.names[spec.Name] = true
	c.specs = append(c.specs, spec)
	if other, taken := c.places[spec.Place()]; taken && other != spec.Name {
		c.findings = append(c.findings, finding{key: key, index: index, warning: true,
			what: fmt.Sprintf("paths %s and %s are the same way out (%s), so one observer sees both", other, spec.Name, spec.Place()),
			hint: "splitting between them hides nothing; use another interface or address"})
	}
	c.places[spec.Place()] = spec.Name
}

// carry makes the paths, and fails if one of the named ones does not carry what user needs.
func (c *pathChecker) carry(names []string, needs path.Carries, user string) error {
	set, err := path.NewSet(c.specs, path.Options{})
	if err != nil {
		return err
	}
	for _, name := range names {
		if p := set[name]; p != nil {
			if err := path.Need(p, needs, user); err != nil {
				return err
			}
		}
	}
	return nil
}

// explain returns an error's line and its hint.
func explain(err error) (what, hint string) {
	return err.Error(), errhint.Of(err)
}
