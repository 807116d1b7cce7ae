package path

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"

	"heddle/internal/dial"
)

// Spec is a path as the user writes it: NAME=KIND:ARG, or NAME=KIND:ARG@BASE for a tunnel that rides another path.
type Spec struct {
	Name string
	Kind string
	Arg  string
	Base string // name of the path that a tunnel rides; empty means the machine's own routes
}

var nameRule = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,31}$`)

// ParseSpec parses NAME=KIND:ARG[@BASE]. KIND must be registered. Only a tunnel may have a base.
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

// String returns the spec in the format of [ParseSpec].
func (s Spec) String() string { return s.Name + "=" + s.Place() }

// Place returns the spec without its name.
func (s Spec) Place() string {
	if s.Base != "" {
		return s.Kind + ":" + s.Arg + "@" + s.Base
	}
	return s.Kind + ":" + s.Arg
}

// Options are common to all kinds of path.
type Options struct {
	Mark uint32 // SO_MARK of each socket, or 0; needs CAP_NET_ADMIN
	Base Path   // path of a tunnel's own packets; never nil when a tunnel is made
	// Secret returns the credential of the path with the name; nil if there is none. It is called each time the path opens,
	// and again after a refusal.
	Secret   func(name string) (Secret, error)
	Identity string // file of this device's key, for paths that prove it; "" means this user's own
	// Lookup finds the addresses of a tunnel's own server by its name, over the path under the tunnel; nil means this machine's
	// resolver.
	Lookup func(ctx context.Context, base Path, name string) ([]netip.Addr, error)
}

// AddressesOf looks up the host of a tunnel's own server.
func (o Options) AddressesOf(ctx context.Context, host string) ([]netip.Addr, error) {
	if _, err := netip.ParseAddr(host); err == nil || o.Lookup == nil {
		return dial.Lookup(ctx, host)
	}
	return o.Lookup(ctx, o.Base, host)
}

// Secret is a password or token. Formatting never shows it.
type Secret string

// Format hides the secret for all verbs.
func (Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, "(secret)") }

// MarshalText hides the secret, also from encoding/json and log/slog.
func (Secret) MarshalText() ([]byte, error) { return []byte("(secret)"), nil }

// Kind makes the paths of one scheme.
type Kind struct {
	Scheme   string
	Argument string // a word or two for help texts
	Carries  Carries
	Tunnel   bool // packets travel inside others, on the path of @BASE
	// New returns the path. It fails only if the argument can never work, such as an invalid address. A missing device is no
	// failure, since it may appear later.
	New func(Spec, Options) (Path, error)
}

var registry = struct {
	sync.Mutex
	kinds map[string]Kind
}{kinds: map[string]Kind{}}

// Register adds a kind of path. It panics if the scheme exists or the kind carries nothing.
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

// Kinds returns the registered schemes in alphabetical order.
func Kinds() []string {
	registry.Lock()
	defer registry.Unlock()
	return slices.Sorted(maps.Keys(registry.kinds))
}

// KindsFor returns the registered schemes that carry all of c, in alphabetical order.
func KindsFor(c Carries) []string {
	return slices.DeleteFunc(Kinds(), func(scheme string) bool { k, _ := lookupKind(scheme); return c&^k.Carries != 0 })
}

// KindCarries returns what paths of a scheme carry, or 0 if the scheme is unknown.
func KindCarries(scheme string) Carries {
	k, _ := lookupKind(scheme)
	return k.Carries
}

// IsTunnel reports whether the kind of a scheme is a tunnel.
func IsTunnel(scheme string) bool {
	k, _ := lookupKind(scheme)
	return k.Tunnel
}

func lookupKind(scheme string) (Kind, bool) {
	registry.Lock()
	defer registry.Unlock()
	k, ok := registry.kinds[scheme]
	return k, ok
}
