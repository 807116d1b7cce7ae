package handshake

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"heddle/disguise/block"
)

// MaxSkew is how far a client's clock may be from the bridge's.
const MaxSkew = 90 * time.Minute

// Reason says why a bridge refused a message. Only its operator learns it.
type Reason string

const (
	NoHello  Reason = "no hello"             // who sent it does not know the bridge's key
	Cut      Reason = "changed or cut"       // made with the bridge's key, but not as this version makes it
	Clock    Reason = "wrong clock"          // more than MaxSkew off
	Replayed Reason = "replayed"             // seen before, or so old that it might have been
	NoToken  Reason = "wrong token"          // or none
	NotKept  Reason = "cannot be remembered" // the replay cache is full, or cannot be written
	NoLink   Reason = "joins no link"        // for callers: the link of an rc is unknown, or its proof is wrong
)

// Refusal is the error for messages that get no answer. It is an [ErrStranger].
type Refusal struct {
	Reason Reason
	Err    error // the cause of NotKept
}

func (e *Refusal) Error() string {
	if e.Err != nil {
		return "refused: " + string(e.Reason) + ": " + e.Err.Error()
	}
	return "refused: " + string(e.Reason)
}

func (e *Refusal) Is(target error) bool { return target == ErrStranger }

func (e *Refusal) Unwrap() error { return e.Err }

// Server recognises hellos. Its methods may run concurrently.
type Server struct {
	identity Identity
	public   PublicKey
	tokens   [][sha256.Size]byte
	replays  *Replays
}

// NewServer returns the server of a bridge. If there are tokens, a hello must have one of them.
func NewServer(id Identity, replays *Replays, tokens ...[]byte) (*Server, error) {
	if id.key == nil || replays == nil {
		return nil, errors.New("a bridge needs an identity and a replay cache")
	}
	s := &Server{identity: id, public: id.Public(), replays: replays}
	for _, token := range tokens {
		if len(token) == 0 || len(token) > MaxToken {
			return nil, fmt.Errorf("a token has 1 to %d bytes", MaxToken)
		}
		s.tokens = append(s.tokens, sha256.Sum256(token))
	}
	return s, nil
}

// Accepted is a hello that deserves an answer.
type Accepted struct {
	Hello
	Reconnect bool // an rc, and not an nc

	server *Server
	from   Representative
	es     []byte
	keys   block.Keys
	proof  []byte
	now    time.Time // of Read
}

// Read reads the hello at the start of b, which it does not change, and returns its length. With [ErrShort] n is how many bytes b
// must have before the next call, at most about 9 kB: two calls that do work suffice, however slowly bytes arrive. An
// [ErrStranger] must never get an answer.
func (s *Server) Read(b []byte, now time.Time) (n int, a *Accepted, err error) {
	if len(b) < leastHello {
		return leastHello, nil, ErrShort
	}
	a = &Accepted{server: s, from: Representative(b[:reprSize]), now: now}
	point, err := a.from.point()
	if err != nil {
		return 0, nil, &Refusal{Reason: NoHello}
	}
	if a.es, err = s.identity.key.ECDH(point); err != nil {
		return 0, nil, &Refusal{Reason: NoHello} // a point of low order
	}
	a.keys = helloKeys(a.es, s.public, a.from)
	codec := block.NewCodec(a.keys)
	h, ok := codec.Header(b[reprSize:])
	if !ok {
		return 0, nil, &Refusal{Reason: NoHello}
	}
	a.Reconnect = h.Function == block.Reconnect
	if h.Number != 0 || !a.Reconnect && h.Function != block.NewClient || h.Data > ncFixed+2*255 || h.Padding > MaxPadding {
		return 0, nil, &Refusal{Reason: Cut}
	}
	n = reprSize + h.Size()
	if len(b) < n {
		return n, nil, ErrShort
	}
	data, err := codec.Open(append([]byte(nil), b[reprSize:n]...), h)
	if err != nil {
		return 0, nil, &Refusal{Reason: Cut}
	}
	if err := a.accept(data); err != nil {
		return 0, nil, err
	}
	return n, a, nil
}

// accept checks what a hello says. The replay cache comes last: nothing that is refused takes room in it.
func (a *Accepted) accept(data []byte) error {
	var ok bool
	if a.Reconnect {
		a.Hello, a.proof, ok = parseReconnect(data)
	} else {
		a.Hello, ok = parseNewClient(data)
	}
	if !ok {
		return &Refusal{Reason: Cut}
	}
	if off := a.now.Sub(a.Time); off > MaxSkew || off < -MaxSkew {
		return &Refusal{Reason: Clock}
	}
	if a.Reconnect {
		return a.server.replays.check(a.from, a.Time)
	}
	if !a.server.admits(a.Token) {
		return &Refusal{Reason: NoToken}
	}
	return a.server.replays.remember(a.from, a.Time, a.now)
}

// admits compares with all tokens, in a time that does not depend on them.
func (s *Server) admits(token []byte) bool {
	if len(s.tokens) == 0 {
		return true
	}
	sum, right := sha256.Sum256(token), 0
	for _, one := range s.tokens {
		right |= subtle.ConstantTimeCompare(sum[:], one[:])
	}
	return right == 1
}

// Keys returns the keys of blocks that the client sends behind an nc before it has the answer. Their numbers start at 1.
func (a *Accepted) Keys() block.Keys { return a.keys }

// Answer makes the answer to an nc, and the keys that follow from it. The answer holds block 0 of the bridge's direction. Each
// call gives other bytes and other keys, so that an answer that was lost can be made again.
func (a *Accepted) Answer(link uint32, now time.Time, padding int) ([]byte, Secrets, error) {
	return a.answer(rand.Reader, link, now, padding)
}

func (a *Accepted) answer(random io.Reader, link uint32, now time.Time, padding int) ([]byte, Secrets, error) {
	if a.Reconnect {
		return nil, Secrets{}, errors.New("an rc has no answer")
	}
	own, err := newEphemeral(random)
	if err != nil {
		return nil, Secrets{}, err
	}
	point, err := a.from.point()
	if err != nil {
		return nil, Secrets{}, err
	}
	ee, err := own.private.ECDH(point)
	if err != nil {
		return nil, Secrets{}, err
	}
	s := linkSecrets(a.es, ee, a.server.public, a.from, own.public, false)
	data := binary.BigEndian.AppendUint32(nil, link)
	data = binary.BigEndian.AppendUint32(data, uint32(now.Unix()))
	b, err := seal(own.public, s.Out, block.NewServer, data, padding)
	return b, s, err
}

// Joins reports whether an rc proves that its sender knows the link with the secrets of any epoch, and was not seen before. The
// answer to a second call is false.
func (a *Accepted) Joins(s Secrets) bool {
	return a.Reconnect && subtle.ConstantTimeCompare(a.proof, s.proof(a.from)) == 1 &&
		a.server.replays.remember(a.from, a.Time, a.now) == nil
}
