package board

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"heddle/board/space"
	"heddle/identity"
	"heddle/internal/netutil"
	"heddle/path"
)

// ClientOptions configure a [Client].
type ClientOptions struct {
	Reference
	Identity identity.Identity
	// Timeout limits an operation, not counting its wait for tuples; 0 is 10 seconds.
	Timeout time.Duration
	// Dial makes the connections; nil uses the machine's network.
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	Clock func() time.Time // nil: the machine's
	Log   *slog.Logger     // nil: no log
}

// Client uses a board. It accepts an answer that more than Faults replicas give, and only tuples with their authors'
// signatures. It is safe for concurrent use.
type Client struct {
	ClientOptions
	remotes []*remote

	mu     sync.Mutex
	offset time.Duration // of the board's clock from ours
	since  uint64        // version that the board must have reached
}

// NewClient makes no connection yet.
func NewClient(o ClientOptions) (*Client, error) {
	if err := o.check("this reference"); err != nil {
		return nil, err
	}
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{ClientOptions: o}
	for _, r := range o.Replicas {
		remote, err := newRemote(o.Identity, r, o.Dial)
		if err != nil {
			return nil, err
		}
		c.remotes = append(c.remotes, remote)
	}
	return c, nil
}

// Close closes idle connections.
func (c *Client) Close() error {
	for _, r := range c.remotes {
		r.http.CloseIdleConnections()
	}
	return nil
}

// ErrNone means that no tuple matches the template, or none has the name.
var ErrNone = errors.New("there is no such tuple")

// Refusal is the error for an operation that the board refused.
type Refusal struct {
	Verb   string
	Result space.Result
}

// Error returns the operation and the reason.
func (e *Refusal) Error() string {
	return fmt.Sprintf("%s: the board refuses (%v): %s", e.Verb, e.Result.Status, e.Result.Detail)
}

// HintText returns what the user can do.
func (e *Refusal) HintText() string {
	switch e.Result.Status {
	case space.Denied:
		return "only the author of a tuple takes or removes it, and whom the author lets: see --takers"
	case space.Stranger:
		return "ask the board's owner to let this device's key in"
	case space.Clock:
		return "set this device's clock"
	case space.TooLarge, space.Quota:
		return "`heddle board status` shows the limits"
	case space.Full:
		return "wait until leases end, or ask the board's owner"
	}
	return ""
}

// Is makes a refusal with status None an [ErrNone].
func (e *Refusal) Is(target error) bool {
	return target == ErrNone && (e.Result.Status == space.None)
}

// Put configures a tuple to be put.
type Put struct {
	Lease   time.Duration  // how long it stays without being renewed
	Readers []identity.Key // see [space.Op]
	Takers  []identity.Key
}

// Out puts a tuple and returns its name.
func (c *Client) Out(ctx context.Context, tuple space.Tuple, p Put) (space.ID, error) {
	_, id, err := c.apply(ctx, space.Op{Verb: space.Out, Tuple: tuple, Lease: p.Lease, Readers: p.Readers, Takers: p.Takers}, 0)
	return id, err
}

// Cas puts a tuple unless one matches the template. Then done is false, and other is that one if this device may read it.
func (c *Client) Cas(ctx context.Context, template space.Template, tuple space.Tuple, p Put) (id space.ID, other *space.Entry, done bool, err error) {
	op := space.Op{Verb: space.Cas, Template: template, Tuple: tuple, Lease: p.Lease, Readers: p.Readers, Takers: p.Takers}
	result, id, err := c.apply(ctx, op, 0)
	refused, ok := errors.AsType[*Refusal](err)
	if !ok || refused.Result.Status != space.Exists {
		return id, nil, err == nil, err
	}
	if len(result.Entries) > 0 {
		other = &result.Entries[0]
	}
	return space.ID{}, other, false, nil
}

// Inp takes the oldest matching tuple that this device may take, or fails with [ErrNone].
func (c *Client) Inp(ctx context.Context, template space.Template) (space.Entry, error) {
	result, _, err := c.apply(ctx, space.Op{Verb: space.Inp, Template: template}, 0)
	return one(result, err)
}

// In is [Client.Inp] that waits for a tuple until ctx ends. After a deadline the board's answer may come slightly later. If
// ctx is cancelled, a tuple just taken for this device is lost.
func (c *Client) In(ctx context.Context, template space.Template) (space.Entry, error) {
	return untilOne(ctx, func(wait time.Duration) (space.Result, error) {
		result, _, err := c.apply(ctx, space.Op{Verb: space.Inp, Template: template}, wait)
		return result, err
	})
}

// untilOne repeats a waiting request until there is a tuple or ctx ends.
func untilOne(ctx context.Context, ask func(wait time.Duration) (space.Result, error)) (space.Entry, error) {
	for {
		result, err := ask(patience(ctx))
		if ended := ctx.Err(); err != nil && errors.Is(ended, context.Canceled) || ended != nil && errors.Is(err, ErrNone) {
			return space.Entry{}, ended
		}
		if !errors.Is(err, ErrNone) {
			return one(result, err)
		}
	}
}

// patience returns how long the next request may wait.
func patience(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(MaxWait, max(time.Until(deadline), time.Millisecond))
	}
	return MaxWait
}

// Rdp reads the oldest matching tuple, or fails with [ErrNone].
func (c *Client) Rdp(ctx context.Context, template space.Template) (space.Entry, error) {
	return one(c.read(ctx, space.Query{Template: template, Limit: 1}, 0))
}

// Rd is [Client.Rdp] that waits for a tuple until ctx ends.
func (c *Client) Rd(ctx context.Context, template space.Template) (space.Entry, error) {
	return untilOne(ctx, func(wait time.Duration) (space.Result, error) {
		return c.read(ctx, space.Query{Template: template, Limit: 1}, wait)
	})
}

func one(result space.Result, err error) (space.Entry, error) {
	if err != nil {
		return space.Entry{}, err
	}
	return result.Entries[0], nil
}

// List reads all matching tuples, in order of arrival. It may miss those that come or go meanwhile.
func (c *Client) List(ctx context.Context, template space.Template) ([]space.Entry, error) {
	var all []space.Entry
	for after := uint64(0); ; after = all[len(all)-1].Seq {
		result, err := c.read(ctx, space.Query{Template: template, Limit: space.MaxEntries, After: after}, 0)
		if errors.Is(err, ErrNone) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, result.Entries...)
	}
}

// Renew gives one's own tuple a new lease, from now.
func (c *Client) Renew(ctx context.Context, id space.ID, lease time.Duration) error {
	_, _, err := c.apply(ctx, space.Op{Verb: space.Renew, Target: id, Lease: lease}, 0)
	return err
}

// Remove removes a tuple that this device may take.
func (c *Client) Remove(ctx context.Context, id space.ID) error {
	_, _, err := c.apply(ctx, space.Op{Verb: space.Remove, Target: id}, 0)
	return err
}

// apply signs an operation and has it executed once: all tries carry the same name.
func (c *Client) apply(ctx context.Context, op space.Op, wait time.Duration) (space.Result, space.ID, error) {
	op.Space = c.Space
	var lost atomic.Bool
	result, signed, err := c.try(ctx, op, wait, &lost)
	if err == nil && result.Status == space.Clock {
		c.setClock(result.Now)
		if lost.Load() { // the first try may have been in time
			return space.Result{}, space.ID{}, unknown(nil)
		}
		result, signed, err = c.try(ctx, op, wait, &lost)
	}
	if err != nil && lost.Load() {
		err = unknown(err)
	}
	if err != nil {
		return result, space.ID{}, err
	}
	c.mu.Lock()
	c.since = max(c.since, result.Version)
	c.mu.Unlock()
	if err := c.believe(op.Template, result.Entries, 1); err != nil {
		return space.Result{}, space.ID{}, err
	}
	if result.Status == space.OK && op.Verb == space.Inp && len(result.Entries) != 1 {
		return space.Result{}, space.ID{}, badAnswer(errors.New("it says that it gave a tuple, and gives none"))
	}
	if result.Status != space.OK {
		return result, space.ID{}, &Refusal{op.Verb.String(), result}
	}
	return result, signed.ID(), nil
}

// unknown is the error for an operation that the board may have executed, or may still execute.
func unknown(err error) error {
	return &path.Error{What: "the board", Why: "it is not known whether it did what it was asked, and it may do it yet", Err: err, Hint: "look with `heddle board list`"}
}

// setClock adopts the board's clock, which leases depend on.
func (c *Client) setClock(board time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = board.Sub(c.Clock())
	c.Log.Warn("this device's clock is not that of the board", "board_is_ahead_by", c.offset.Round(time.Second))
}

func (c *Client) try(ctx context.Context, op space.Op, wait time.Duration, lost *atomic.Bool) (space.Result, space.SignedOp, error) {
	c.mu.Lock()
	now := c.Clock().Add(c.offset)
	c.mu.Unlock()
	signed, err := op.Sign(c.Identity, now)
	if err != nil {
		return space.Result{}, signed, &path.Error{What: op.Verb.String(), Why: err.Error()}
	}
	limited, cancel := c.limited(ctx, wait)
	defer cancel()
	result, err := c.poll(limited, asking{applyPath, wait, signed.Bytes(), lost})
	return result, signed, err
}

// limited bounds one request. If it waits, the board ends it at ctx's deadline; its answer may be a tuple and must be read.
func (c *Client) limited(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait == 0 {
		return context.WithTimeout(ctx, c.Timeout)
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait+c.Timeout)
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel()
		}
	})
	return limited, func() { stop(); cancel() }
}

// read asks until enough replicas agree.
func (c *Client) read(ctx context.Context, q space.Query, wait time.Duration) (space.Result, error) {
	c.mu.Lock()
	q.Since = c.since
	c.mu.Unlock()
	body, err := q.Encode()
	if err != nil {
		return space.Result{}, &path.Error{What: "a read", Why: err.Error()}
	}
	limited, cancel := c.limited(ctx, wait)
	defer cancel()
	question := asking{readPath, wait, body, new(atomic.Bool)}
	result, err := c.poll(limited, question)
	for errors.Is(err, errDisagree) && netutil.Sleep(limited, firstPause) == nil {
		if result, err = c.poll(limited, question); err != nil && limited.Err() != nil {
			err = errDisagree // the last complete poll ended so
		}
	}
	if err != nil {
		return space.Result{}, err
	}
	if result.Status != space.OK {
		return result, &Refusal{"read", result}
	}
	if len(result.Entries) == 0 {
		return space.Result{}, badAnswer(errors.New("it says that there are tuples, and gives none"))
	}
	for i, e := range result.Entries {
		if e.Seq <= q.After || i > 0 && e.Seq <= result.Entries[i-1].Seq {
			return space.Result{}, badAnswer(errors.New("the tuples are not in order"))
		}
	}
	return result, c.believe(q.Template, result.Entries, q.Limit)
}

// believe checks the tuples' signatures and that they match the request.
func (c *Client) believe(template space.Template, entries []space.Entry, limit int) error {
	if len(entries) > limit {
		return badAnswer(fmt.Errorf("it gives %d tuples, and was asked for %d", len(entries), limit))
	}
	for _, e := range entries {
		if err := e.Verify(c.Space, space.MaxSlack); err != nil {
			return badAnswer(err)
		}
		if !template.Matches(e.Tuple()) {
			return badAnswer(errors.New("the tuple is not one that was asked for"))
		}
	}
	return nil
}

func badAnswer(err error) error {
	return &path.Error{What: "the board's answer", Why: "cannot be right", Err: err, Hint: "the board lies, or is broken: use another"}
}

// ReplicaStatus is the status of one replica.
type ReplicaStatus struct {
	Replica
	Status *Status       `json:"status,omitempty"`
	Error  string        `json:"error,omitempty"`
	RTT    time.Duration `json:"rtt_ns,omitempty"` // of the request, with the handshake
}

// Status asks each replica for its own report.
func (c *Client) Status(ctx context.Context) []ReplicaStatus {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	all := make([]ReplicaStatus, len(c.remotes))
	var wait sync.WaitGroup
	for i, r := range c.remotes {
		wait.Go(func() {
			begin := time.Now()
			s, err := r.status(ctx)
			all[i] = ReplicaStatus{Replica: r.Replica, RTT: time.Since(begin)}
			if err != nil {
				all[i].Error = err.Error()
				return
			}
			all[i].Status = &s
		})
	}
	wait.Wait()
	return all
}
