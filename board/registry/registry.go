// Package registry describes overlay nodes and devices by tuples, and reads them back.
//
// A [Node] or [Stream] is identified by its key, which must have signed its tuple. Two may have the same name. [Keep]
// registers and renews. A [Directory] is the list of registrations, which a [Cache] stores for when the board cannot be
// reached. Being listed is no proof of trust: everybody who may write to the board can register.
package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"heddle/board/space"
	"heddle/identity"
	"heddle/internal/netutil"
	"heddle/path"
)

// The first fields of the tuples.
const (
	kindNode   = "heddle-node"
	kindStream = "heddle-stream"
)

// Node is an overlay node. Its tuple is (heddle-node, name, key, addresses in JSON, modes with commas, ASN).
type Node struct {
	Name      string       `json:"name"`
	Key       identity.Key `json:"key"`
	Addresses []string     `json:"addresses"` // HOST:PORT
	Modes     []string     `json:"modes"`     // forward, nat
	ASN       uint32       `json:"asn,omitempty"`
	Entry     `json:"registration"`
}

// Stream is a device that offers a service. Its tuple is (heddle-stream, name, key, addresses in JSON).
type Stream struct {
	Name      string       `json:"name"`
	Key       identity.Key `json:"key"`
	Addresses []string     `json:"addresses"` // HOST:PORT
	Entry     `json:"registration"`
}

// Entry is the board's data on a registration. It is zero for a new one.
type Entry struct {
	ID    space.ID  `json:"id"`
	Until time.Time `json:"until"` // end of its lease, by the board's clock
}

// Registration is a [Node] or a [Stream].
type Registration interface {
	label() (kind, name string, key identity.Key)
	fields() (space.Tuple, error)
}

func (n Node) label() (kind, name string, key identity.Key)   { return kindNode, n.Name, n.Key }
func (s Stream) label() (kind, name string, key identity.Key) { return kindStream, s.Name, s.Key }

func (n Node) fields() (space.Tuple, error) {
	for _, mode := range n.Modes {
		if !isName(mode) {
			return nil, fmt.Errorf("%.80q is no mode", mode)
		}
	}
	if len(n.Modes) > 8 {
		return nil, errors.New("it has more than 8 modes")
	}
	tuple, err := common(n, n.Addresses)
	return append(tuple, space.String(strings.Join(n.Modes, ",")), space.Int(int64(n.ASN))), err
}

func (s Stream) fields() (space.Tuple, error) { return common(s, s.Addresses) }

func common(r Registration, addresses []string) (space.Tuple, error) {
	kind, name, key := r.label()
	if err := check(name, addresses); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(addresses)
	return space.Tuple{space.String(kind), space.String(name), space.Bytes(key.Bytes()), space.String(string(raw))}, err
}

// named matches all registrations of one name.
func named(r Registration) space.Template {
	kind, name, _ := r.label()
	template := space.Template{space.String(kind), space.String(name), space.AnyOf(space.TypeBytes), space.AnyOf(space.TypeString)}
	if kind == kindNode {
		template = append(template, space.AnyOf(space.TypeString), space.AnyOf(space.TypeInt))
	}
	return template
}

const maxAddresses = 16

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// isName accepts names that are safe in a path and in a terminal.
func isName(text string) bool { return namePattern.MatchString(text) }

func check(name string, addresses []string) error {
	if !isName(name) {
		return fmt.Errorf("%.80q is no name: it has 1 to 63 letters, digits, '.', '_' and '-'", name)
	}
	if len(addresses) == 0 || len(addresses) > maxAddresses {
		return fmt.Errorf("it has %d addresses, and not 1 to %d", len(addresses), maxAddresses)
	}
	for _, address := range addresses {
		if host, _, err := netutil.SplitHostPort(address); err != nil || !hostPattern.MatchString(host) {
			return fmt.Errorf("%.80q is not HOST:PORT", address)
		}
	}
	return nil
}

var hostPattern = regexp.MustCompile(`^[A-Za-z0-9:][A-Za-z0-9.:_%-]{0,252}$`)

// Directory is the list of registrations.
type Directory struct {
	Nodes   []Node    `json:"nodes"`
	Streams []Stream  `json:"streams"`
	Ignored int       `json:"ignored"`          // malformed, or not signed by the key that they name
	Read    time.Time `json:"read"`             // when the board answered, by this device's clock
	Cached  string    `json:"cached,omitempty"` // why the board could not be reached, if the list is a stored one
}

// Parse reads registrations from tuples with verified signatures. The latest of each key and name counts.
func Parse(entries []space.Entry) Directory {
	var d Directory
	for _, e := range entries {
		tuple := e.Tuple()
		kind := tuple[0].Text()
		if kind != kindNode && kind != kindStream {
			continue
		}
		key, name, addresses, err := head(e)
		about := Entry{e.ID(), e.Until}
		switch {
		case err != nil:
			d.Ignored++
		case kind == kindStream && len(tuple) == 4:
			d.Streams = append(d.Streams, Stream{name, key, addresses, about})
		case kind == kindNode && len(tuple) == 6 && tuple[5].Type() == space.TypeInt && tuple[5].Int() >= 0 && tuple[5].Int() < 1<<32:
			n := Node{Name: name, Key: key, Addresses: addresses, ASN: uint32(tuple[5].Int()), Entry: about}
			if modes := tuple[4].Text(); modes != "" {
				n.Modes = strings.Split(modes, ",")
			}
			if _, err := n.fields(); err != nil {
				d.Ignored++
				continue
			}
			d.Nodes = append(d.Nodes, n)
		default:
			d.Ignored++
		}
	}
	d.Nodes, d.Streams = youngest(d.Nodes), youngest(d.Streams)
	return d
}

// head reads the fields that nodes and streams share.
func head(e space.Entry) (key identity.Key, name string, addresses []string, err error) {
	tuple := e.Tuple()
	if len(tuple) < 4 {
		return key, "", nil, errors.New("it is too short")
	}
	if key, err = identity.NewKey(tuple[2].Bytes()); err != nil {
		return key, "", nil, err
	}
	if key != e.Author() {
		return key, "", nil, errors.New("it is signed by another key than it names")
	}
	name = tuple[1].Text()
	if err := json.Unmarshal([]byte(tuple[3].Text()), &addresses); err != nil {
		return key, "", nil, err
	}
	return key, name, addresses, check(name, addresses)
}

// youngest keeps the last registration of each key and name, and sorts by name. The list is in order of arrival.
func youngest[T Registration](list []T) []T {
	type label struct {
		name string
		key  identity.Key
	}
	last := map[label]int{}
	kept := []T{} // an empty list in JSON, not null
	for _, r := range list {
		_, name, key := r.label()
		if at, again := last[label{name, key}]; again {
			kept[at] = r
			continue
		}
		last[label{name, key}] = len(kept)
		kept = append(kept, r)
	}
	slices.SortStableFunc(kept, func(a, b T) int {
		_, one, _ := a.label()
		_, other, _ := b.label()
		return strings.Compare(one, other)
	})
	return kept
}

// Stream finds a stream by name or by the device's key. It fails with an [AmbiguousError] if several keys have the name.
func (d Directory) Stream(which string) (found Stream, err error) {
	var all []Stream
	var keys []identity.Key
	for _, s := range d.Streams {
		if s.Name == which || s.Key.String() == which {
			all, keys = append(all, s), append(keys, s.Key)
		}
	}
	switch len(all) {
	case 0:
		why := "none is registered"
		if d.Cached != "" {
			why = "none was registered when the board was last reached"
		}
		return found, &path.Error{What: "stream " + which, Why: why, Hint: "`heddle board streams` lists those that are"}
	case 1:
		return all[0], nil
	}
	return found, &AmbiguousError{which, keys}
}

// AmbiguousError means that several streams have one name, so that choosing one would be a guess.
type AmbiguousError struct {
	Name string
	Keys []identity.Key
}

// Error names the keys.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("stream %s: %d have this name: %v", e.Name, len(e.Keys), e.Keys)
}

// HintText returns what the user can do.
func (*AmbiguousError) HintText() string {
	return "ask its owner for the key, and give the key instead of the name"
}

// Shared returns the names that several keys have.
func (d Directory) Shared() (names []string) {
	return slices.Sorted(slices.Values(slices.Concat(shared(d.Nodes), shared(d.Streams))))
}

func shared[T Registration](list []T) (names []string) {
	for i, r := range list { // they are sorted by name, and differ by key
		_, name, _ := r.label()
		if i == 0 {
			continue
		}
		if _, before, _ := list[i-1].label(); before == name && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
