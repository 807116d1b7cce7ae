package path

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Carries is what a path, or a kind of path, carries.
type Carries uint8

const (
	Datagrams Carries = 1 << iota // UDP: the path is an [Opener]
	Streams                       // TCP: the path is a [Dialer]
)

// String returns text such as "datagrams and streams".
func (c Carries) String() string {
	var names []string
	if c&Datagrams != 0 {
		names = append(names, "datagrams")
	}
	if c&Streams != 0 {
		names = append(names, "streams")
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, " and ")
}

// Opener is a path that carries datagrams.
type Opener interface {
	Path
	// Open starts a flow of UDP datagrams to one remote address. It fails with an [Error] if the path has no device, no
	// address of the remote's family, or no route.
	Open(ctx context.Context, to netip.AddrPort) (Flow, error)
}

// Dialer is a path that carries streams.
type Dialer interface {
	Path
	// Dial connects to a target over this path only.
	Dial(ctx context.Context, to Target) (net.Conn, error)
}

// CarriesOf returns what a path carries. A tunnel with a method Carries may carry less than its kind, as its base does.
func CarriesOf(p Path) Carries {
	if c, ok := p.(interface{ Carries() Carries }); ok {
		return c.Carries()
	}
	var c Carries
	if _, ok := p.(Opener); ok {
		c |= Datagrams
	}
	if _, ok := p.(Dialer); ok {
		c |= Streams
	}
	return c
}

// Need returns an [Error] if the path does not carry what its user, such as "a stream", needs.
func Need(p Path, c Carries, user string) error {
	has := CarriesOf(p)
	if c&^has == 0 {
		return nil
	}
	info := p.Describe()
	why := fmt.Sprintf("it carries %v, and %s needs %v", has, user, c&^has)
	if k, ok := lookupKind(info.Kind); ok && c&^k.Carries == 0 {
		return &Error{What: "path " + info.Name, Why: why, Hint: "the path under it carries no more; let it ride another one"}
	}
	return &Error{What: "path " + info.Name, Why: why, Hint: fmt.Sprintf("kinds that carry %v: %s", c, strings.Join(KindsFor(c), ", "))}
}

// Open starts a flow of datagrams over a path; see [Opener]. It fails if the path carries no datagrams.
func Open(ctx context.Context, p Path, to netip.AddrPort) (Flow, error) {
	if err := Need(p, Datagrams, "UDP"); err != nil {
		return nil, err
	}
	return p.(Opener).Open(ctx, to)
}

// Dial connects over a path; see [Dialer]. It fails if the path carries no streams.
func Dial(ctx context.Context, p Path, to Target) (net.Conn, error) {
	if err := Need(p, Streams, "TCP"); err != nil {
		return nil, err
	}
	return p.(Dialer).Dial(ctx, to)
}
