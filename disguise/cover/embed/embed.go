// Package embed is the cover that replays recorded conversations: each connection sends packets of the recorded sizes, in the
// recorded directions, at the recorded times, and with the recorded headers. Blocks fill the packets. What waits to be sent
// changes none of this, so an observer of one connection sees what the recorded program sends.
//
// Do not use it for much data: a connection carries at most what the recorded program sent.
package embed

import (
	"context"
	_ "embed" // for the database
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"heddle/disguise/cover"
	"heddle/path"
)

// Name and Number are those of the kind.
const (
	Name   = "embed"
	Number = 2
)

// Claim is what the cover hides and what it does not.
const Claim = "sizes, directions, times and headers are those of a recorded program, whatever is inside; everybody with the same " +
	"database replays the same traces, so an observer who has it recognises them; reacts to nothing on the network as the program would"

func init() {
	cover.Register(cover.Kind{Name: Name, Number: Number, Claim: Claim, Streams: true, Datagrams: true, New: New, Local: []string{"traces", "trace"}, Both: []string{"traces"},
		Args: map[string]string{
			"transport": "tcp or udp: which of the traces, and how the connections to the bridge go (default: tcp)",
			"traces":    "the file of the trace database; both sides need the same one (default: the one that Heddle brings)",
			"trace":     "the name or the number of the trace to replay, of a client (default: another one for each connection)",
		}})
}

// factory implements [cover.Factory].
type factory struct {
	traces    *Database
	datagrams bool
	life      cover.Life
	choice    []int // traces that a client replays
}

// New returns the factory for the setting "traces".
func New(o cover.Options) (cover.Factory, error) {
	d, err := Open(o.Args["traces"])
	if err != nil {
		return nil, err
	}
	return FactoryOf(d, o)
}

// FactoryOf returns the factory of covers that replay the traces of a database.
func FactoryOf(d *Database, o cover.Options) (cover.Factory, error) {
	f := &factory{traces: d, datagrams: o.Datagrams, life: o.Life}
	var have []string
	wanted := o.Args["trace"]
	for i := range d.Traces {
		if t := &d.Traces[i]; t.Datagrams == o.Datagrams {
			have = append(have, t.Name)
			if wanted == "" || wanted == t.Name || wanted == strconv.Itoa(i) {
				f.choice = append(f.choice, i)
			}
		}
	}
	if len(f.choice) > 0 {
		return f, nil
	}
	e := &path.Error{What: "cover " + Name, Why: fmt.Sprintf("the database has no trace %q for %s", wanted, transport(o.Datagrams)),
		Hint: "one of " + strings.Join(have, ", ")}
	if slices.ContainsFunc(d.Traces, func(t Trace) bool { return t.Name == wanted && t.Datagrams != o.Datagrams }) {
		e.Hint = "it is a trace over " + transport(!o.Datagrams) + ": set transport=" + strings.ToLower(transport(!o.Datagrams))
	}
	if len(have) == 0 {
		e.Why, e.Hint = "the database has no trace over "+transport(o.Datagrams), "record one, or use "+transport(!o.Datagrams)
	}
	return nil, e
}

func transport(datagrams bool) string {
	if datagrams {
		return "UDP"
	}
	return "TCP"
}

// parametersSize is the length of the parameters: number, fingerprint of the database, trace, and the packet to begin with.
const parametersSize = 1 + 8 + 2 + 4

func (f *factory) Client() (cover.Cover, []byte, error) {
	at := f.choice[rand.IntN(len(f.choice))]
	trace := &f.traces.Traces[at]
	starts := trace.starts()
	start := starts[rand.IntN(len(starts))]
	parameters := append([]byte{Number}, f.traces.Fingerprint[:]...)
	parameters = binary.BigEndian.AppendUint16(parameters, uint16(at))
	parameters = binary.BigEndian.AppendUint32(parameters, uint32(start))
	return &connection{trace: trace, start: start, life: f.life}, parameters, nil
}

// ErrOtherDatabase says that client and bridge have different trace databases.
var ErrOtherDatabase = errors.New("the client has another trace database")

func (f *factory) Server(parameters []byte) (cover.Cover, error) {
	if len(parameters) != parametersSize || parameters[0] != Number {
		return nil, fmt.Errorf("parameters %x are not those of the cover %s", parameters, Name)
	}
	if [8]byte(parameters[1:9]) != f.traces.Fingerprint {
		return nil, ErrOtherDatabase
	}
	at, start := int(binary.BigEndian.Uint16(parameters[9:])), binary.BigEndian.Uint32(parameters[11:])
	if at >= len(f.traces.Traces) || f.traces.Traces[at].Datagrams != f.datagrams {
		return nil, fmt.Errorf("there is no trace %d over %s", at, transport(f.datagrams))
	}
	trace := &f.traces.Traces[at]
	if !slices.Contains(trace.starts(), int(start)) {
		return nil, fmt.Errorf("trace %d does not begin with packet %d", at, start)
	}
	return &connection{trace: trace, start: max(trace.hello(int(start)), 0), down: true, life: f.life}, nil
}

func (f *factory) Leads() []int { return f.traces.leads(f.datagrams) }

// leads returns the lengths of the clients' headers.
func (d *Database) leads(datagrams bool) (all []int) {
	for i := range d.Traces {
		if t := &d.Traces[i]; t.Datagrams == datagrams {
			all = append(all, t.Up.Size())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

//go:embed traces/lab.db
var lab []byte

// Lab returns the database that Heddle brings. docs/traces-embed.md is its data card.
var Lab = sync.OnceValues(func() (*Database, error) { return Parse(lab) })

// Open loads a database from a file. Without a name it is [Lab].
func Open(name string) (*Database, error) {
	if name == "" {
		return Lab()
	}
	return Load(name)
}

// connection implements [cover.Cover]: one end of one connection.
type connection struct {
	trace *Trace
	start int  // the packet to begin with
	down  bool // this end is the server
	life  cover.Life
}

// errSilent ends a connection of datagrams whose peer is gone.
var errSilent = errors.New("the peer has sent nothing for too long")

// extraSilence is how much longer than any recorded silence a peer may be silent.
const extraSilence = 15 * time.Second

// readSize is the most that a connection takes at once, in bytes: datagrams may have this size.
const readSize = 64 << 10

// Carry implements [cover.Cover].
func (c *connection) Carry(ctx context.Context, conn net.Conn, f cover.Feed) error {
	p := newPlayer(c, f)
	if !c.trace.Datagrams {
		strip := 0
		if !c.down { // the bridge skips the client's opening before the hello
			strip = c.trace.Down.Size()
		}
		return cover.Carry(ctx, conn, c.life, readSize, func(b []byte) error {
			n := min(strip, len(b))
			strip -= n
			return f.Take(b[n:])
		}, p.run)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	most := extraSilence + c.trace.silence(!c.down)
	heard := time.AfterFunc(most, func() { cancel(errSilent) })
	defer heard.Stop()
	header := c.trace.Header(!c.down).Size()
	return cover.Carry(ctx, conn, c.life, readSize, func(b []byte) error {
		if len(b) < header {
			return nil
		}
		err := f.Take(b[header:])
		if errors.Is(err, cover.ErrForeign) {
			return nil
		}
		heard.Reset(most)
		return err
	}, p.run)
}
