package cover

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"heddle/internal/errhint"
	"heddle/path"
)

// Kind is a kind of cover.
type Kind struct {
	Name   string
	Number byte   // begins the parameters of the cover in a hello
	Claim  string // one line on what the cover hides, and what it does not
	// Streams and Datagrams say what its connections may be.
	Streams, Datagrams bool
	// Args are the names that [Options.Args] may hold, with what they mean.
	Args map[string]string
	// Local are the settings that mean something on one machine only, such as names of files. No bridge line carries them.
	Local []string
	// Both are those of them that client and bridge need alike, each from a file of its own machine.
	Both []string
	// Offered are the settings that a client takes from the bridge line where it has none of its own.
	Offered []string
	// Behind, Origin and ACME say which parts of a [Front] it takes.
	Behind, Origin, ACME bool
	// Connections is how many connections a link has where nobody says it; 0 is the client's default.
	Connections int
	New         func(Options) (Factory, error)
}

// Options are what a client or a bridge chose for its covers.
type Options struct {
	// Seed is drawn from the bridge's public key. Shapes that differ between bridges follow from it.
	Seed      []byte
	Datagrams bool // the connections carry datagrams
	Bridge    bool // the factory is a bridge's
	Front     Front
	Life      Life
	Args      map[string]string
}

// Factory makes the covers of one client or of one listener of a bridge. Its methods may run concurrently.
type Factory interface {
	// Client returns the cover of a new connection, and the parameters for its hello, at most [MaxParameters] bytes.
	Client() (c Cover, parameters []byte, err error)
	// Server returns the cover of a connection from the parameters in its hello. They may be hostile. The connection that
	// the cover carries begins behind the hello: the bridge has read what leads it, and the hello.
	Server(parameters []byte) (Cover, error)
	// Leads returns how many bytes may precede the hello, at the beginning of a connection or of each datagram. A bridge
	// looks for a hello behind each of these lengths.
	Leads() []int
}

// MaxParameters is the most bytes that parameters have.
const MaxParameters = 255

// MaxLeads is the most lengths that [Factory.Leads] returns: each of them costs a bridge a key agreement for a stranger.
const MaxLeads = 4

var (
	kindsLock sync.RWMutex
	kinds     = map[string]Kind{}
)

// Register adds a kind. Its package calls it from init. It panics if the name or the number exists.
func Register(k Kind) {
	kindsLock.Lock()
	defer kindsLock.Unlock()
	for _, other := range kinds {
		if other.Name == k.Name || other.Number == k.Number {
			panic(fmt.Sprintf("cover %q, number %d: %q, number %d is registered", k.Name, k.Number, other.Name, other.Number))
		}
	}
	kinds[k.Name] = k
}

// Kinds returns all kinds, by number.
func Kinds() []Kind {
	kindsLock.RLock()
	defer kindsLock.RUnlock()
	return slices.SortedFunc(maps.Values(kinds), func(a, b Kind) int { return cmp.Compare(a.Number, b.Number) })
}

// New returns a factory of the covers with a name.
func New(name string, o Options) (Factory, error) {
	kindsLock.RLock()
	k, known := kinds[name]
	kindsLock.RUnlock()
	what := "cover " + name
	o.Datagrams = o.Datagrams || OverUDP(o.Args)
	switch {
	case !known:
		return nil, &path.Error{What: fmt.Sprintf("cover %q", name), Why: "there is no such cover", Hint: "one of " + strings.Join(names(), ", ")}
	case o.Datagrams && !k.Datagrams:
		return nil, &path.Error{What: what, Why: "it does not carry datagrams", Hint: "use TCP"}
	case !o.Datagrams && !k.Streams:
		return nil, &path.Error{What: what, Why: "it carries datagrams only", Hint: "use UDP"}
	}
	switch {
	case o.Front.Behind && !k.Behind:
		return nil, &path.Error{What: what, Why: "it cannot be behind another web server", Hint: "the cover https can"}
	case o.Front.Origin != nil && !k.Origin:
		return nil, &path.Error{What: what, Why: "it is no website, and has no origin", Hint: "the covers http and https can have one"}
	case o.Front.ACME != nil && !k.ACME:
		return nil, &path.Error{What: what, Why: "it needs no certificate", Hint: "leave out acme; the cover https needs one"}
	}
	for _, arg := range slices.Sorted(maps.Keys(o.Args)) {
		if k.Args[arg] == "" && common[arg] == "" {
			return nil, &path.Error{What: what, Why: fmt.Sprintf("it has no setting %q", arg), Hint: k.settings()}
		}
	}
	if _, err := ShareOf(o.Args); err != nil {
		return nil, &path.Error{What: what, Err: err, Hint: errhint.Of(err)}
	}
	if t, set := o.Args[transport]; set && t != "tcp" && t != "udp" {
		return nil, &path.Error{What: what, Why: fmt.Sprintf("%q is no transport", t), Hint: "tcp or udp"}
	}
	if err := o.Life.check(); err != nil {
		return nil, &path.Error{What: what, Err: err, Hint: fmt.Sprintf("a connection needs at least %d bytes each way", MinBytes)}
	}
	return k.New(o)
}

// Connections is how many connections a link by a cover has where nobody says it; 0 is the client's default.
func Connections(name string) int {
	kindsLock.RLock()
	defer kindsLock.RUnlock()
	return kinds[name].Connections
}

func names() (all []string) {
	for _, k := range Kinds() {
		all = append(all, k.Name)
	}
	return all
}

func (k Kind) settings() string {
	return "its settings are " + strings.Join(append(slices.Sorted(maps.Keys(k.Args)), slices.Sorted(maps.Keys(common))...), ", ")
}
