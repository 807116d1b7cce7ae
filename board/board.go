// Package board is the multi-path manager of MACHETE (section III): a tuple space in the network, where overlay nodes and
// devices say who they are and find each other.
//
// A [Local] keeps a [space.Space] in a file, and writes an operation to the disk before it answers. [Serve] offers it, or any
// other [Backend], over TLS 1.3 in which both sides prove their keys. A [Client] talks to one board, or to its replicas, of which
// some may lie. Tuples are not hidden from those who run the board. Do not use it for what one device alone needs.
package board

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"heddle/board/space"
	"heddle/identity"
	"heddle/internal/atomicfile"
	"heddle/path"
)

// Protocol is what is spoken inside TLS (ALPN): HTTP/1.1 with the requests below. Bodies and answers are those of
// [space.SignedOp], [space.Query] and [space.Result].
const Protocol = "heddle-board/1"

// The requests. The parameter wait of the first two is how long to wait for a tuple that can be taken or read, such as 20s.
const (
	applyPath  = "/v1/apply"  // POST, an operation
	readPath   = "/v1/read"   // POST, a query
	statusPath = "/v1/status" // GET; the answer is a Status in JSON
)

// MaxWait bounds how long one request waits. Whoever waits for longer asks again.
const MaxWait = 50 * time.Second

// Backend is a board to be served.
type Backend interface {
	// Apply does an operation whose author has proved the key. For an Inp it waits for something to take, and then answers
	// [space.None]. An error means that it is not known whether it was done.
	Apply(ctx context.Context, op space.SignedOp, wait time.Duration) (space.Result, error)
	// Read answers a query by who has proved the key. It waits until there is an answer, at most wait.
	Read(ctx context.Context, reader identity.Key, q space.Query, wait time.Duration) (space.Result, error)
	// Status says how it is.
	Status(ctx context.Context) (Status, error)
}

// Status is how a board is, by its own word.
type Status struct {
	Space  space.ID     `json:"space"`
	Limits space.Limits `json:"limits"`
	space.Usage
	Now     time.Time    `json:"now"`     // its clock
	Waiting int          `json:"waiting"` // requests that wait for a tuple
	Members int          `json:"members"` // keys that are let in, or -1 for everybody
	Key     identity.Key `json:"key"`     // of the server that answers
	Detail  any          `json:"detail,omitempty"`
}

// Replica is one server of a board.
type Replica struct {
	Key     identity.Key `json:"key"`
	Address string       `json:"address"` // HOST:PORT
}

// Reference is how a board is found: it holds no secret.
type Reference struct {
	Space    space.ID  `json:"space"`
	Faults   int       `json:"faults"` // how many replicas may lie
	Replicas []Replica `json:"replicas"`
}

// SpaceOf gives the name of the space that a single server has.
func SpaceOf(server identity.Key) space.ID { return space.ID(server.Bytes()) }

// ParseReference reads KEY@HOST:PORT, a board of one server.
func ParseReference(text string) (Reference, error) {
	key, address, ok := strings.Cut(text, "@")
	if !ok {
		return Reference{}, badReference(text, "there is no @")
	}
	k, err := identity.ParseKey(key)
	if err != nil {
		return Reference{}, badReference(text, err.Error())
	}
	r := Reference{Space: SpaceOf(k), Replicas: []Replica{{k, address}}}
	return r, r.check(text)
}

func badReference(text, why string) error {
	return &path.Error{What: fmt.Sprintf("the board %.120q", text), Why: why, Hint: "a board is KEY@HOST:PORT, as `heddle board run` prints it, or a JSON file"}
}

func (r Reference) check(text string) error {
	if r.Faults < 0 || len(r.Replicas) < 3*r.Faults+1 {
		return badReference(text, fmt.Sprintf("%d replicas cannot stand %d that lie: it takes %d", len(r.Replicas), r.Faults, 3*max(r.Faults, 0)+1))
	}
	if r.Space == (space.ID{}) {
		return badReference(text, "it has no name")
	}
	seen := map[identity.Key]bool{}
	for _, replica := range r.Replicas {
		if replica.Key.IsZero() || seen[replica.Key] {
			return badReference(text, "a replica has no key, or that of another")
		}
		seen[replica.Key] = true
		if _, port, err := net.SplitHostPort(replica.Address); err != nil || port == "" {
			return badReference(text, fmt.Sprintf("%q is not HOST:PORT", replica.Address))
		}
	}
	return nil
}

// LoadReference reads a JSON file, or what [ParseReference] reads if there is an @ in it.
func LoadReference(text string) (Reference, error) {
	if strings.HasPrefix(text, "ed25519:") {
		return ParseReference(text)
	}
	raw, err := os.ReadFile(text)
	if err != nil {
		return Reference{}, &path.Error{What: "the board " + text, Why: "cannot be read", Err: err, Hint: "a board is KEY@HOST:PORT or a JSON file; `heddle board use` keeps one"}
	}
	var r Reference
	if err := json.Unmarshal(raw, &r); err != nil {
		return Reference{}, badReference(text, err.Error())
	}
	return r, r.check(text)
}

// DefaultFile is where this user's board is written down: board.json beside the identity.
func DefaultFile() (string, error) {
	file, err := identity.DefaultFile()
	return filepath.Join(filepath.Dir(file), "board.json"), err
}

// Save writes the reference into a file, whole or not at all.
func (r Reference) Save(file string) error { return atomicfile.WriteJSON(file, r) }
