// Package board is the multi-path manager of MACHETE (section III): a tuple space where overlay nodes and devices register
// and find each other.
//
// A [Local] keeps a [space.Space] in a file, and writes each operation to the disk before it answers. [Serve] offers it, or
// any other [Backend], over TLS 1.3 in which both sides prove their keys. A [Client] talks to one board, or to its replicas,
// of which some may lie. Operators of the board can read all tuples.
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

// Protocol is the ALPN name of the protocol inside TLS: HTTP/1.1 with the requests below. Bodies and answers are encoded
// [space.SignedOp], [space.Query] and [space.Result].
const Protocol = "heddle-board/1"

// The requests. The parameter wait of the first two limits the wait for a tuple, such as 20s.
const (
	applyPath  = "/v1/apply"  // POST, an operation
	readPath   = "/v1/read"   // POST, a query
	statusPath = "/v1/status" // GET; the answer is a Status in JSON
)

// MaxWait limits how long one request waits. Clients that wait for longer ask again.
const MaxWait = 50 * time.Second

// Backend is a board to be served.
type Backend interface {
	// Apply executes an operation whose author proved the key. An Inp waits for a tuple and otherwise returns [space.None].
	// After an error it is unknown whether the operation was executed.
	Apply(ctx context.Context, op space.SignedOp, wait time.Duration) (space.Result, error)
	// Read answers a query of a reader who proved the key. It waits for an answer, at most wait.
	Read(ctx context.Context, reader identity.Key, q space.Query, wait time.Duration) (space.Result, error)
	Status(ctx context.Context) (Status, error)
}

// Status is a board's own report.
type Status struct {
	Space  space.ID     `json:"space"`
	Limits space.Limits `json:"limits"`
	space.Usage
	Now     time.Time    `json:"now"`     // the board's clock
	Waiting int          `json:"waiting"` // requests that wait for a tuple
	Members int          `json:"members"` // keys admitted, or -1 for everybody
	Key     identity.Key `json:"key"`     // of the answering server
	Detail  any          `json:"detail,omitempty"`
}

// Replica is one server of a board.
type Replica struct {
	Key     identity.Key `json:"key"`
	Address string       `json:"address"` // HOST:PORT
}

// Reference tells clients where a board is. It holds no secret.
type Reference struct {
	Space    space.ID  `json:"space"`
	Faults   int       `json:"faults"` // how many replicas may lie
	Replicas []Replica `json:"replicas"`
}

// SpaceOf returns the space name of a single server.
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

// LoadReference reads a JSON file, or KEY@HOST:PORT as [ParseReference] does.
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

// DefaultFile returns the file with this user's board: board.json beside the identity.
func DefaultFile() (string, error) {
	file, err := identity.DefaultFile()
	return filepath.Join(filepath.Dir(file), "board.json"), err
}

// Save writes the reference into a file atomically.
func (r Reference) Save(file string) error { return atomicfile.WriteJSON(file, r) }
