package config

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"heddle/board"
	"heddle/path"
)

// KeptBoard sets the board of `heddle board use` if the peer, its address or the nodes are not given.
func (s *Stripe) KeptBoard() {
	if s.Board != "" || s.To != "" && s.Key != "" && s.Paths == 0 {
		return
	}
	file, err := board.DefaultFile()
	if err != nil {
		return // the missing peer is reported elsewhere
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		s.Board = file
	}
}

// resolve expands the paths of a [[dial]] table. It inherits via and path from before the first table, unless it
// chooses nodes: then the inherited via are the paths that those ride. Keys on splitting datagrams do not apply to
// streams.
func (d *StreamDial) resolve(all Paths, top map[string]string, dir string) {
	switch {
	case d.Paths > 0 && len(d.Via) == 0 && len(d.Path) == 0:
		d.Path = all.Via
	case d.Paths == 0 || len(d.Via) > 0:
		if len(d.Via) == 0 {
			d.Via = all.Via
		}
		d.Via = written(d.Via, top)
		d.Path = beside(slices.Concat(all.Via, all.Path), Paths{Via: d.Via, Path: d.Path})
	}
	d.Stripe.beside(dir)
	besideFiles(dir, &d.SocksUsers)
}

// used returns the names of a stream's paths.
func (d StreamDial) used() []string {
	names := Paths{Via: d.Via, Path: d.Path}.used()
	if d.Paths > 0 {
		names = append(names, namesOf(d.Path)...)
	}
	return names
}

// stream reports the errors of a [[serve]] or [[dial]] table.
func (v *validator) stream(wrong problems, s interface{ SessionName() string }, prefix string) {
	for _, key := range slices.Sorted(maps.Keys(wrong)) {
		what, hint := explainFlat(wrong[key])
		v.error(prefix+key, what, hint)
	}
	if wrong["name"] == nil {
		v.name(s.SessionName(), "", prefix)
	}
}

func (v *validator) dial(d StreamDial, prefix string) {
	wrong := d.problems()
	for key, err := range wrong {
		list, at, isOne := strings.Cut(strings.TrimSuffix(key, "]"), "[")
		if !isOne {
			continue
		}
		if !v.written(prefix + key) { // set before the first table, and reported there
			delete(wrong, key)
			continue
		}
		if i, _ := strconv.Atoi(at); list == "via" {
			what, hint := explainFlat(err)
			f := v.byName(finding{what: what, hint: hint}, d.Via[i], false)
			wrong[key] = &path.Error{Why: f.what, Hint: f.hint}
		}
	}
	v.stream(wrong, d, prefix)
	if d.Listen != "" && wrong["listen"] == nil {
		v.exposed(d.Listen, prefix+"listen")
	}
	if d.Socks != "" && wrong["socks"] == nil {
		v.exposed(d.Socks, prefix+"socks")
	}
	v.ready(d.Via, prefix)
}
