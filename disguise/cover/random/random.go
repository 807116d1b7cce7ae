// Package random is the cover without a protocol: blocks and nothing else over TCP, as obfs4 does. Lengths and pauses follow
// a distribution that differs between bridges. An idle connection sends nothing.
//
// Do not use it where a filter blocks fully encrypted traffic, except with the setting prefix, and not where it admits only
// protocols that it knows: use the cover embed there.
package random

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"net"

	"heddle/disguise/cover"
	"heddle/path"
)

// Name and Number are those of the kind.
const (
	Name   = "random"
	Number = 1
)

// Claim is what the cover hides and what it does not.
const Claim = "hides the protocol inside, its sizes and its patterns; the bytes are uniform random, so a filter for fully encrypted " +
	"traffic detects it in the first packet; hides neither how much is sent nor when"

// printable is the only prefix, and printableBytes its length: the least that the rule of inspect.Exemption asks for.
const (
	printable      = "printable"
	printableBytes = 6
)

func init() {
	cover.Register(cover.Kind{Name: Name, Number: Number, Claim: Claim, Streams: true, New: New,
		Args: map[string]string{"prefix": "printable: each connection begins with 6 printable bytes each way, so that the filter for fully " +
			"encrypted traffic lets it pass; both sides need the same setting"}})
}

// factory implements [cover.Factory].
type factory struct {
	shape  shape
	life   cover.Life
	prefix int // bytes that lead each direction
}

// New returns the factory of a bridge's covers.
func New(o cover.Options) (cover.Factory, error) {
	f := &factory{shape: shapeOf(o.Seed), life: o.Life}
	switch prefix := o.Args["prefix"]; prefix {
	case "", "none":
	case printable:
		f.prefix = printableBytes
	default:
		return nil, &path.Error{What: "cover " + Name, Why: fmt.Sprintf("there is no prefix %q", prefix), Hint: "leave it out, or use " + printable}
	}
	return f, nil
}

// parametersSize is the length of the parameters: the number, and how many bytes the bridge may send.
const parametersSize = 1 + 4

// Client asks the bridge to keep to the client's limit too.
func (f *factory) Client() (cover.Cover, []byte, error) {
	limit := uint32(min(f.life.Bytes, math.MaxUint32))
	return f.connection(true, f.life), binary.BigEndian.AppendUint32([]byte{Number}, limit), nil
}

func (f *factory) Server(parameters []byte) (cover.Cover, error) {
	if len(parameters) != parametersSize || parameters[0] != Number {
		return nil, fmt.Errorf("parameters %x are not those of the cover %s", parameters, Name)
	}
	life := f.life
	if asked := int64(binary.BigEndian.Uint32(parameters[1:])); asked != 0 {
		asked = max(asked, cover.MinBytes)
		if life.Bytes == 0 || asked < life.Bytes {
			life.Bytes = asked
		}
	}
	return f.connection(false, life), nil
}

func (f *factory) Leads() []int { return []int{f.prefix} }

func (f *factory) connection(client bool, life cover.Life) *connection {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // it never fails
	draws := mrand.New(mrand.NewChaCha8(seed))
	if life.Age > 0 {
		life.Age = f.shape.age(draws, life.Age)
	}
	c := &connection{shape: f.shape, life: life, lead: f.prefix, draws: draws}
	if client { // a bridge reads the client's prefix together with the hello
		c.strip = f.prefix
	}
	return c
}

// connection implements [cover.Cover]: one end of one connection.
type connection struct {
	shape shape
	life  cover.Life
	draws *mrand.Rand
	lead  int // printable bytes to send first
	strip int // bytes of the peer's prefix that are yet to arrive
}

// readSize is the most that a connection takes at once, in bytes.
const readSize = 128 << 10

// Carry implements [cover.Cover].
func (c *connection) Carry(ctx context.Context, conn net.Conn, f cover.Feed) error {
	take := func(b []byte) error {
		n := min(c.strip, len(b))
		c.strip -= n
		if n == len(b) {
			return nil
		}
		return f.Take(b[n:])
	}
	s := sender{connection: c, feed: f, pace: newPace(conn)}
	return cover.Carry(ctx, conn, c.life, readSize, take, s.run)
}

// printableLead fills b with random printable bytes.
func printableLead(draws *mrand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(' ' + draws.IntN('~'-' '+1))
	}
}
