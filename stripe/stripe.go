// Package stripe carries one reliable byte stream over several paths at once (MACHETE, section III-C), so that nobody who
// watches one path gets the whole.
//
// A [Conn] is a session: a stream in each direction, cut into segments, each of which takes one path; or split into
// shares, one for each path, so that fewer than k of them tell nothing. On each path there is one member: a connection to the
// peer device, made by the path's own [path.Dialer], with TLS 1.3 from end to end in it in which both sides prove their
// keys. What was under way on a path that died is sent again on that path and on no other, unless degrading is permitted.
//
// Do not use this package for datagrams (that is package split), nor where one path is enough: an ordinary connection is
// cheaper then.
package stripe

import (
	"io"
	"log/slog"
	"time"

	"heddle/identity"
	"heddle/path"
)

// Protocol is what is spoken inside the TLS of a member (ALPN, RFC 7301).
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

// Path is one path to the peer, by the name that the user gave it. Its kind must carry streams.
type Path struct {
	Name string
	path.Path
}

// Options say how a session is striped. The side that dials decides for both directions.
type Options struct {
	Paths []Path
	// To is the peer device, reached by each path; a name is looked up as [path.Target] says.
	To       path.Target
	Identity identity.Identity
	Peer     identity.Key
	// Service is what the peer is asked for, up to 255 bytes; empty for its default.
	Service string
	// Schedule is "strict" (one segment each in turn), "fast" (whoever has room) or "weighted". With shares each path
	// gets one share of each unit, and it only says whether slow paths are waited for: "strict" waits for all that
	// live, "fast" only for as many as restore the stream. Empty is strict, or fast where shares leave paths to spare.
	Schedule string
	// Weights are for weighted, one a path; nil draws them anew from the Dirichlet distribution for each session.
	Weights []float64
	// Segment is the size of a segment with its header in bytes, [MinSegment] to [MaxSegment]; 0 is [DefaultSegment],
	// which fills one TLS record.
	Segment int
	// Shares is "none", "KofN", "shamir:KofN" or "xor:N", where N is the number of paths; empty is none.
	Shares string
	// MinPaths is on how many paths at least anything is sent; 0 is all of them, or with shares and the schedule fast as
	// many as restore the stream.
	MinPaths int
	// Degrade permits to go on over fewer paths, and to move what was under way on a dead path to another one. Shares
	// never move, and never go out over fewer paths than restore them.
	Degrade bool
	// Patience is how long a session that cannot go on waits for its paths; 0 is [DefaultPatience].
	Patience time.Duration
	// Window is how many bytes of each direction this side holds at most: those that were not read yet or wait for others,
	// and those that the peer did not confirm; 0 is [DefaultWindow].
	Window int
	// MinRate is the rate in bytes per second that a path with something to send must keep, or it is dropped and
	// dialled anew; 0 is [DefaultMinRate], below 0 is none.
	MinRate int
	// Log hears of paths that come and go; nil is silence.
	Log *slog.Logger
	// KeyLog gets the keys of the members' TLS (as SSLKEYLOGFILE), for experiments on what an observer could read if the
	// cipher were broken; nil for none.
	KeyLog io.Writer
}
