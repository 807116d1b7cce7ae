package path

import (
	"fmt"
	"slices"
	"strings"
)

// New returns the path of a spec. A tunnel rides o.Base, or the machine's own routes if that is nil; then its spec must have
// no base, as only [NewSet] knows the other paths.
func New(s Spec, o Options) (Path, error) {
	k, ok := lookupKind(s.Kind)
	if !ok {
		return nil, &Error{What: "path " + s.Name, Why: fmt.Sprintf("no kind of path is called %q", s.Kind),
			Hint: "kinds: " + strings.Join(Kinds(), ", ")}
	}
	if s.Base != "" && o.Base == nil {
		return nil, &Error{What: "path " + s.Name, Why: fmt.Sprintf("it rides %s, which is not here", s.Base), Hint: "define " + s.Base + " with --path"}
	}
	if k.Tunnel && o.Base == nil {
		o.Base = NewSystem(o.Mark)
	}
	return k.New(s, o)
}

// NewSet returns the paths of all specs by name. Each tunnel rides the path that its base names. NewSet fails on a duplicate
// name, an unknown base or a cycle.
func NewSet(specs []Spec, o Options) (map[string]Path, error) {
	byName := map[string]Spec{}
	for _, s := range specs {
		if _, taken := byName[s.Name]; taken {
			return nil, &Error{What: "path " + s.Name, Why: "two paths have this name", Hint: "give each path its own name"}
		}
		byName[s.Name] = s
	}
	made := map[string]Path{}
	for _, s := range specs {
		if err := build(s, byName, made, o, nil); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// build builds one path, and before it the path that it rides. above are the tunnels that ride it.
func build(s Spec, byName map[string]Spec, made map[string]Path, o Options, above []string) error {
	if made[s.Name] != nil {
		return nil
	}
	if i := slices.Index(above, s.Name); i >= 0 {
		return &Error{What: "path " + s.Name, Why: "it would ride itself: " + strings.Join(append(above[i:], s.Name), " rides "),
			Hint: "let one of them ride an interface, such as @home with home=if:eth0"}
	}
	if s.Base != "" {
		base, ok := byName[s.Base]
		if !ok {
			return &Error{What: "path " + s.Name, Why: fmt.Sprintf("no path is called %q, which it would ride", s.Base),
				Hint: "define it with --path " + s.Base + "=KIND:ARG, or correct what follows the @"}
		}
		if err := build(base, byName, made, o, append(above, s.Name)); err != nil {
			return err
		}
		o.Base = made[s.Base]
	}
	var err error
	made[s.Name], err = New(s, o)
	return err
}
