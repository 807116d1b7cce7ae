// Package stripe carries one reliable byte stream over several paths at once (MACHETE, section III-C), so that an observer
// of one path does not get all of it.
//
// A [Conn] is a session: a stream in each direction, cut into segments that each take one path, or split into shares, one a
// path, of which fewer than k reveal nothing. Each path has one member: a connection to the peer through the path's
// [path.Dialer], with end-to-end TLS 1.3 in which both sides prove their keys. Data in flight on a path that died is sent
// again on that path only, unless Degrade is set. Use package split for datagrams.
package stripe

import (
	"io"
	"log/slog"
	"time"

	"heddle/identity"
	"heddle/path"
)

// Protocol is the ALPN name (RFC 7301) of the protocol inside a member's TLS.
const Protocol = "heddle-stripe/1"

// Bounds and defaults of [Options].
const (
	MaxPaths        = 32
	MinSegment      = 128
	MaxSegment      = 64 << 10
	DefaultSegment  = 16 << 10
	DefaultPatience = 30 * time.Second
	DefaultWindow   = 16 << 20
	DefaultMinRate  = 4 << 10
)

// Path is a named path to the peer. Its kind must carry streams.
type Path struct {
	Name string
	path.Path
}

// Options configure a session. The dialling side decides for both directions.
type Options struct {
	Paths []Path
	// To is the peer device. Each path dials it; [path.Target] says how a name is resolved.
	To       path.Target
	Identity identity.Identity
	Peer     identity.Key
	Service  string // up to 255 bytes; empty for the peer's default
	// Schedule is "strict" (one segment each in turn), "fast" (whoever has room) or "weighted". With shares, each path gets
	// a share of each unit, and "strict" waits for all live paths, "fast" only for as many as restore the stream. Empty is
	// strict, or fast if there are more shares than needed.
	Schedule string
	// Weights are for weighted, one a path; nil draws them from the Dirichlet distribution for each session.
	Weights []float64
	// Segment is a segment's size with its header, [MinSegment] to [MaxSegment] bytes. 0 is [DefaultSegment], a TLS record.
	Segment int
	// Shares is "none", "KofN", "shamir:KofN" or "xor:N", where N is the number of paths; empty is none.
	Shares string
	// MinPaths is the number of paths below which nothing is sent. 0 is all, or K with shares and the schedule fast.
	MinPaths int
	// Degrade permits fewer paths, and moves data of a dead path to another. Shares never move and always need K paths.
	Degrade bool
	// Patience limits how long a blocked session waits for its paths; 0 is [DefaultPatience].
	Patience time.Duration
	// Window limits the bytes that this side holds in each direction, unread or unconfirmed; 0 is [DefaultWindow].
	Window int
	// MinRate, in bytes per second, is the rate below which a busy path is redialled; 0 is [DefaultMinRate], below 0 none.
	MinRate int
	Log     *slog.Logger // paths that come and go; nil for none
	KeyLog  io.Writer    // the members' TLS keys in SSLKEYLOGFILE format, for experiments; may be nil
}
