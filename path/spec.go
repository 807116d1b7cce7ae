package path

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Spec is a path as a person writes it: NAME=KIND:ARG, or NAME=KIND:ARG@BASE for a tunnel that rides another path.
type Spec struct {
	Name string
	Kind string
	Arg  string
	// Base is the name of the path that a tunnel rides, or empty for the machine's own routes.
	Base string
}

var nameRule = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,31}$`)

// ParseSpec reads NAME=KIND:ARG[@BASE]. KIND must be registered; only a tunnel takes a base.
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
	k, ok := lookupKind(kind)
	if !ok {
		return bad(fmt.Sprintf("no kind of path is called %q", kind), "kinds: "+strings.Join(Kinds(), ", "))
	}
	spec := Spec{Name: name, Kind: kind, Arg: arg}
	if at := strings.LastIndexByte(arg, '@'); k.Tunnel && at > 0 && nameRule.MatchString(arg[at+1:]) {
		spec.Arg, spec.Base = arg[:at], arg[at+1:]
	}
	return spec, nil
}

// String gives the spec as ParseSpec reads it.
func (s Spec) String() string { return s.Name + "=" + s.Place() }

// Place is the spec without its name: what two names for one way out have in common.
func (s Spec) Place() string {
	if s.Base != "" {
		return s.Kind + ":" + s.Arg + "@" + s.Base
	}
	return s.Kind + ":" + s.Arg
}

// Options are what all kinds of path share.
type Options struct {
	// Mark is the SO_MARK of each socket, or 0. Setting it needs CAP_NET_ADMIN.
	Mark uint32
	// Base is the path that a tunnel's own packets take. It is never nil where a tunnel is made.
	Base Path
	// Secret reads what the path of a name must show to be let in; nil where there is none. It is asked when the path
	// is opened, not before, and again after a refusal.
	Secret func(name string) (Secret, error)
	// Identity is the file of this device's key, for paths that prove it; empty is this user's own.
	Identity string
}

// Secret is a password or token. It does not print itself.
type Secret string

// Format hides the secret, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, "(secret)") }

// MarshalText hides the secret. Packages encoding/json and log/slog use it too.
func (Secret) MarshalText() ([]byte, error) { return []byte("(secret)"), nil }

// Kind makes paths of one scheme.
type Kind struct {
	Scheme string
	// Argument says what ARG is, in a word or two, for help texts.
	Argument string
	// Carries is what paths of the kind carry.
	Carries Carries
	// Tunnel is a kind whose packets travel inside others, which take the path that @BASE names.
	Tunnel bool
	// New makes the path. It fails only on an argument that can never work, such as text that is no address; a device
	// that is absent now is no failure, since it may come.
	New func(Spec, Options) (Path, error)
}

var registry = struct {
	sync.Mutex
	kinds map[string]Kind
}{kinds: map[string]Kind{}}

// Register adds a kind of path. It panics where the scheme is taken or the kind carries nothing: these are mistakes of
// the program.
func Register(k Kind) {
	if k.Carries == 0 {
		panic("path: kind " + k.Scheme + " carries nothing")
	}
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

// KindsFor lists the registered schemes that carry all of c, in alphabetical order.
func KindsFor(c Carries) []string {
	return slices.DeleteFunc(Kinds(), func(scheme string) bool { k, _ := lookupKind(scheme); return c&^k.Carries != 0 })
}

// KindCarries says what paths of a scheme carry; nothing where the scheme is unknown.
func KindCarries(scheme string) Carries {
	k, _ := lookupKind(scheme)
	return k.Carries
}

func lookupKind(scheme string) (Kind, bool) {
	registry.Lock()
	defer registry.Unlock()
	k, ok := registry.kinds[scheme]
	return k, ok
}
