package status

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/leftover"
	backends "heddle/cmd/heddle/split"
	"heddle/config"
	"heddle/path"
	"heddle/split/tunnel"
)

// left is what a session that ended without cleaning up still changes on this machine.
type left struct {
	Name    string   `json:"name"`
	Changes []string `json:"changes"`
}

// lookLeft looks for what crashes left: of the named session, or of all that do not run.
func lookLeft(names []string) ([]left, error) {
	running, err := control.Names()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		names = journals()
	}
	var found []left
	for _, name := range names {
		if slices.Contains(running, name) {
			continue
		}
		lines, _, err := tunnel.Left(control.Dir(), name)
		more, backendsErr := backends.LeftByBackends(name, backends.Guarded...)
		settings, settingsErr := leftover.Left(name)
		lines = slices.Concat(lines, more, settings)
		if err := errors.Join(err, backendsErr, settingsErr); err != nil {
			lines = append(lines, err.Error())
		}
		if len(lines) > 0 {
			found = append(found, left{name, lines})
		}
	}
	if running, err = control.Names(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(l left) bool { return slices.Contains(running, l.Name) }), nil // it started meanwhile
}

// journals lists the sessions that have a journal, in alphabetical order.
func journals() (names []string) {
	entries, _ := os.ReadDir(control.Dir()) // Names reports a directory that cannot be read
	for _, entry := range entries {
		for _, kind := range slices.Concat([]string{"journal"}, backends.Guarded, leftover.Kinds()) {
			name, ok := strings.CutSuffix(entry.Name(), "."+kind+".json")
			if ok && config.CheckSessionName(name) == nil && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func leftText(b *strings.Builder, l left) {
	fmt.Fprintf(b, "%s: not running, but it crashed and left changes on this machine; `heddle down %[1]s` takes them back\n", l.Name)
	for _, change := range l.Changes {
		fmt.Fprintf(b, "  %s\n", change)
	}
}

func passingText(b *strings.Builder, l path.Leftover, now time.Time) {
	when := l.When
	if !l.Ends.IsZero() {
		when = fmt.Sprintf("in %v, %s", l.Ends.Sub(now).Round(time.Second), l.When)
	}
	fmt.Fprintf(b, "%s: of a session that ended\n  blocks %s\n  ends by itself %s; `%s` ends it now\n", l.What, l.Blocks, when, l.By)
}
