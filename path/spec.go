package path

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Spec is a path as a person writes it: NAME=KIND:ARG.
type Spec struct {
	Name string
	Kind string
	Arg  string
}

var nameRule = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,31}$`)

// ParseSpec reads NAME=KIND:ARG. KIND must be registered.
func ParseSpec(text string) (Spec, error) {
	bad := func(why, hint string) (Spec, error) {
		return Spec{}, &Error{What: fmt.Sprintf("path %q", text), Why: why, Hint: hint}
	}
	name, rest, found := strings.Cut(text, "=")
	if !found {
		return bad("no name", "write NAME=KIND:ARG, for example home=if:eth0")
	}
	if !nameRule.MatchString(name) {
		return bad(fmt.Sprintf("%q is no name for a path", name),
			"a name is 1 to 32 letters, digits, '.', '_' or '-', and starts with a letter or digit")
	}
	kind, arg, found := strings.Cut(rest, ":")
	if !found || arg == "" {
		return bad("no kind or no argument", "write NAME=KIND:ARG, for example home=if:eth0; kinds: "+strings.Join(Kinds(), ", "))
	}
	if _, ok := lookupKind(kind); !ok {
		return bad(fmt.Sprintf("no kind of path is called %q", kind), "kinds: "+strings.Join(Kinds(), ", "))
	}
	return Spec{Name: name, Kind: kind, Arg: arg}, nil
}

// String gives the spec as ParseSpec reads it.
func (s Spec) String() string { return s.Name + "=" + s.Kind + ":" + s.Arg }

// Options are what all kinds of path share.
type Options struct {
	// Mark is the SO_MARK of each socket, or 0. Setting it needs CAP_NET_ADMIN.
	Mark uint32
}

// Kind makes paths of one scheme.
type Kind struct {
	Scheme string
	// Argument says what ARG is, in a word or two, for help texts.
	Argument string
	// New makes the path. It fails only on an argument that can never work, such as text that is no address; a device
	// that is absent now is no failure, since it may come.
	New func(Spec, Options) (Path, error)
}

var registry = struct {
	sync.Mutex
	kinds map[string]Kind
}{kinds: map[string]Kind{}}

// Register adds a kind of path. It panics where the scheme is taken: that is a mistake of the program.
func Register(k Kind) {
	registry.Lock()
	defer registry.Unlock()
	if _, taken := registry.kinds[k.Scheme]; taken {
		panic("path: kind " + k.Scheme + " registered twice")
	}
	registry.kinds[k.Scheme] = k
}

// Kinds lists the registered schemes in alphabetical order.
func Kinds() []string {
	registry.Lock()
	defer registry.Unlock()
	return slices.Sorted(maps.Keys(registry.kinds))
}

func lookupKind(scheme string) (Kind, bool) {
	registry.Lock()
	defer registry.Unlock()
	k, ok := registry.kinds[scheme]
	return k, ok
}

// New makes the path that the spec names.
func New(s Spec, o Options) (Path, error) {
	k, ok := lookupKind(s.Kind)
	if !ok {
		return nil, &Error{What: "path " + s.Name, Why: fmt.Sprintf("no kind of path is called %q", s.Kind),
			Hint: "kinds: " + strings.Join(Kinds(), ", ")}
	}
	return k.New(s, o)
}
