// Package space is a Linda tuple space (Gelernter, "Generative Communication in Linda", 1985) with the conditional swap,
// access lists and leases of DepSpace (Bessani et al., EuroSys 2008): a state machine without clock, network or disk.
//
// Authors sign operations. The same operations at the same times in the same order give the same results and the same
// [Space.Hash], so a space can be replicated. Its server does blocking reads. Operators of a space can read all tuples.
package space

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"heddle/identity"
)

// Config is fixed for a space. All replicas must have the same; [Space.Hash] covers it.
type Config struct {
	Name    ID // operations name it
	Limits  Limits
	Members []identity.Key // may put, take and read; nil is everybody
}

// Space holds tuples. It is not safe for concurrent use, except for concurrent reads.
type Space struct {
	config  Config
	members map[identity.Key]bool // nil: everybody
	stamp   [sha256.Size]byte     // hash of config

	clock   int64 // milliseconds; never goes back
	seq     uint64
	version uint64

	tuples   map[ID]*tuple
	index    index
	leases   queue[*tuple]
	memory   map[ID]*memory
	memories queue[*memory]
	authors  map[identity.Key]*account
	bytes    int64

	sum     ltHash
	changes map[string][]byte // since the last [Space.Changes]; nil is removed
}

type tuple struct {
	Entry
	place int // in the queue of leases
}

// memory is a past operation, kept so that it is not executed again.
type memory struct {
	id     ID
	author identity.Key
	until  int64
	result []byte
	place  int
}

// account counts what one author has.
type account struct {
	tuples, ops int
	bytes       int64
}

// New makes an empty space.
func New(config Config) (*Space, error) {
	if err := config.Limits.check(); err != nil {
		return nil, err
	}
	s := &Space{config: config, tuples: map[ID]*tuple{}, index: index{}, memory: map[ID]*memory{},
		authors: map[identity.Key]*account{}, changes: map[string][]byte{}}
	s.SetMembers(config.Members)
	return s, nil
}

// SetMembers changes who is admitted; nil is everybody. All replicas must call it between the same two operations, or never.
func (s *Space) SetMembers(members []identity.Key) {
	s.config.Members, s.members = members, nil
	if members != nil {
		s.members = map[identity.Key]bool{}
		for _, k := range members {
			s.members[k] = true
		}
	}
	s.stamp = s.config.stamp()
}

// Member reports whether a key is admitted.
func (s *Space) Member(who identity.Key) bool {
	return !who.IsZero() && (s.members == nil || s.members[who])
}

// Advance moves the clock to now and drops what has expired. The clock never goes back.
func (s *Space) Advance(now time.Time) {
	s.clock = max(s.clock, now.UnixMilli())
	for len(s.leases) > 0 && milli(s.leases[0].Until) <= s.clock {
		s.drop(s.leases[0])
	}
	for len(s.memories) > 0 && s.memories[0].until < s.clock {
		s.forget(s.memories[0])
	}
}

// Check returns OK if an operation is admissible now: from a member, signed, of valid size and time. It may still fail.
func (s *Space) Check(now time.Time, op SignedOp) Result {
	clock := max(s.clock, now.UnixMilli())
	refuse := func(status Status, format string, args ...any) Result {
		return Result{Status: status, Now: fromMilli(clock), Detail: fmt.Sprintf(format, args...)}
	}
	limits := s.config.Limits
	switch at := op.op.At.UnixMilli(); {
	case op.raw == nil || op.op.Space != s.config.Name:
		return refuse(Malformed, "the operation is for another board")
	case len(op.raw) > limits.Op:
		return refuse(TooLarge, "the operation has %d bytes, and the board takes %d", len(op.raw), limits.Op)
	case !s.Member(op.op.Author):
		return refuse(Stranger, "%v is not let in", op.op.Author)
	case op.Verify() != nil:
		return refuse(Unsigned, "the operation is not signed by %v", op.op.Author)
	case at > clock+limits.Slack.Milliseconds() || at < clock-limits.Slack.Milliseconds():
		return refuse(Clock, "the operation is of %s, and here it is %s: more than %v apart", stampOf(at), stampOf(clock), limits.Slack)
	}
	return Result{Status: OK, Now: fromMilli(clock)}
}

func stampOf(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// Apply executes an operation at now. A repeated operation is not executed again and returns its first result.
func (s *Space) Apply(now time.Time, op SignedOp) Result {
	s.Advance(now)
	if refused := s.Check(now, op); refused.Status != OK {
		return refused
	}
	if result, done := s.Remembered(op.id); done {
		return result
	}
	if s.account(op.op.Author).ops >= s.config.Limits.AuthorOps {
		return Result{Status: Quota, Now: fromMilli(s.clock),
			Detail: fmt.Sprintf("%d operations of yours in %v are as many as the board takes", s.config.Limits.AuthorOps, s.config.Limits.Slack)}
	}
	result := s.do(op)
	s.version++
	result.Version, result.Now = s.version, fromMilli(s.clock)
	s.remember(op, result)
	return result
}

// Remembered returns the result of an operation executed within the last [Limits.Slack].
func (s *Space) Remembered(id ID) (Result, bool) {
	done := s.memory[id]
	if done == nil {
		return Result{}, false
	}
	result, err := DecodeResult(done.result)
	if err != nil {
		panic(fmt.Sprintf("space: a remembered result does not decode: %v", err)) // it was encoded here
	}
	return result, true
}

func (s *Space) do(op SignedOp) Result {
	switch op.op.Verb {
	case Out:
		return s.put(op)
	case Cas:
		return s.cas(op)
	case Inp:
		return s.inp(op)
	case Renew:
		return s.renew(op)
	case Remove:
		return s.remove(op)
	}
	return Result{Status: Malformed, Detail: "no such operation"}
}

func (s *Space) put(op SignedOp) Result {
	if refused := s.lease(op.op.Lease); refused.Status != OK {
		return refused
	}
	limits, has := s.config.Limits, s.account(op.op.Author)
	size := int64(len(op.raw))
	switch {
	case has.tuples >= limits.AuthorTuples:
		return Result{Status: Quota, Detail: fmt.Sprintf("you have %d tuples, as many as one author may have", has.tuples)}
	case has.bytes+size > limits.AuthorBytes:
		return Result{Status: Quota, Detail: fmt.Sprintf("you have %d bytes, and one author may have %d", has.bytes, limits.AuthorBytes)}
	case len(s.tuples) >= limits.Tuples || s.bytes+size > limits.Bytes:
		return Result{Status: Full, Detail: fmt.Sprintf("the board is full: %d tuples, %d bytes", len(s.tuples), s.bytes)}
	}
	s.seq++
	s.add(&tuple{Entry: Entry{Seq: s.seq, Until: fromMilli(s.clock).Add(op.op.Lease), Op: op}})
	return Result{Status: OK}
}

func (s *Space) lease(d time.Duration) Result {
	if d <= 0 {
		return Result{Status: Malformed, Detail: "a lease must be longer than nothing"}
	}
	if d > s.config.Limits.Lease {
		return Result{Status: Quota, Detail: fmt.Sprintf("a lease of %v is longer than %v, the longest here", d, s.config.Limits.Lease)}
	}
	return Result{Status: OK}
}

// cas considers tuples that the author may not read too, or two authors could hold what only one may hold.
func (s *Space) cas(op SignedOp) Result {
	for t := range s.index.matches(op.op.Template, 0) {
		result := Result{Status: Exists, Detail: "there is such a tuple, of " + t.Author().String()}
		if t.readableBy(op.op.Author) {
			result.Entries = []Entry{t.Entry}
		}
		return result
	}
	return s.put(op)
}

func (s *Space) inp(op SignedOp) Result {
	others := false
	for t := range s.index.matches(op.op.Template, 0) {
		if !t.takeableBy(op.op.Author) {
			others = others || t.readableBy(op.op.Author)
			continue
		}
		if s.account(op.op.Author).bytes+int64(t.size()) > s.config.Limits.AuthorBytes {
			return Result{Status: Quota, Detail: "what you took lately must be kept in case you ask again, and that is as much as one author may have"}
		}
		entry := t.Entry
		s.drop(t)
		return Result{Status: OK, Entries: []Entry{entry}}
	}
	if others {
		return Result{Status: Denied, Detail: "the tuples that the template means are others' to take"}
	}
	return Result{Status: None, Detail: "there is no tuple that the template means"}
}

func (s *Space) renew(op SignedOp) Result {
	t, who := s.tuples[op.op.Target], op.op.Author
	switch {
	case t == nil || !t.readableBy(who):
		return Result{Status: None, Detail: "there is no such tuple; its lease may have ended"}
	case t.Author() != who:
		return Result{Status: Denied, Detail: "the tuple is of " + t.Author().String()}
	}
	if refused := s.lease(op.op.Lease); refused.Status != OK {
		return refused
	}
	grown := int64(len(op.raw) - len(t.Renewal.raw))
	if has := s.account(who).bytes; has+grown > s.config.Limits.AuthorBytes {
		return Result{Status: Quota, Detail: fmt.Sprintf("you have %d bytes, and one author may have %d", has, s.config.Limits.AuthorBytes)}
	}
	s.extend(t, op)
	return Result{Status: OK}
}

func (s *Space) remove(op SignedOp) Result {
	t, who := s.tuples[op.op.Target], op.op.Author
	switch {
	case t == nil || !t.readableBy(who) && !t.takeableBy(who):
		return Result{Status: None, Detail: "there is no such tuple; its lease may have ended"}
	case !t.takeableBy(who):
		return Result{Status: Denied, Detail: "the tuple is of " + t.Author().String()}
	}
	s.drop(t)
	return Result{Status: OK}
}

// Read returns what the reader may read of a query's matches, in order of arrival. It changes nothing.
func (s *Space) Read(now time.Time, reader identity.Key, q Query) Result {
	if !s.Member(reader) {
		return Result{Status: Stranger, Detail: fmt.Sprintf("%v is not let in", reader)}
	}
	clock, size := max(s.clock, now.UnixMilli()), 0
	var entries []Entry
	for t := range s.index.matches(q.Template, q.After) {
		if milli(t.Until) <= clock || !t.readableBy(reader) {
			continue
		}
		if size += t.size(); size > maxAnswer && len(entries) > 0 {
			break
		}
		if entries = append(entries, t.Entry); len(entries) >= min(q.Limit, MaxEntries) {
			break
		}
	}
	if entries == nil {
		return Result{Status: None, Detail: "there is no tuple that the template means"}
	}
	return Result{Status: OK, Entries: entries}
}

// Takeable reports whether an Inp by who would find a tuple now.
func (s *Space) Takeable(now time.Time, who identity.Key, template Template) bool {
	clock := max(s.clock, now.UnixMilli())
	for t := range s.index.matches(template, 0) {
		if milli(t.Until) > clock && t.takeableBy(who) {
			return true
		}
	}
	return false
}

func (t *tuple) readableBy(who identity.Key) bool {
	readers := t.Op.op.Readers
	return who == t.Author() || readers == nil || slices.Contains(readers, Anyone) || slices.Contains(readers, who)
}

func (t *tuple) takeableBy(who identity.Key) bool {
	takers := t.Op.op.Takers
	return who == t.Author() || slices.Contains(takers, Anyone) || slices.Contains(takers, who)
}
