package split

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"heddle/cmd/heddle/internal/control"
	"heddle/config"
	"heddle/split"
	"heddle/split/backend"
	"heddle/split/kernel"
	"heddle/split/route"
)

// below is a backend below the socket, which has one session.
type below struct {
	session interface {
		Run(ctx context.Context) error
		Status() split.Status
		Close() error
	}
}

func (b below) Run(ctx context.Context) error { return b.session.Run(ctx) }
func (b below) Status() []split.Status        { return []split.Status{b.session.Status()} }
func (b below) Close() error                  { return b.session.Close() }

// refused reports that this kernel refuses a backend, so that the next may be tried.
func refused(err error) bool { return errors.Is(err, kernel.ErrRefused) }

// openBelow starts a backend below the socket.
func openBelow(ctx context.Context, name string, s config.Split, o split.Options, talk io.Writer) (splitter, error) {
	options := backend.Options{Options: o, Dir: control.Dir(), Ready: func() {
		fmt.Fprintf(talk, "%s: splitting what is sent to %s (backend %s) over %d paths\n", s.SessionName(), s.To, name, len(o.Via))
	}}
	if at, err := netip.ParseAddrPort(s.To); err == nil {
		options.Server = at
	}
	if name == "route" {
		p, err := route.Open(ctx, options)
		if err != nil {
			return nil, err
		}
		return below{p}, nil
	}
	p, err := kernel.Open(ctx, kernel.Options{Options: options, GSOOff: s.GSOOff})
	if err != nil {
		return nil, err
	}
	return below{p}, nil
}

// CleanBackends takes back what a crash of the session left by these backends.
func CleanBackends(session string, keepGuards bool, backends ...string) (lines []string, err error) {
	for _, name := range backends {
		clean := kernel.Clean
		if name == "route" {
			clean = route.Clean
		}
		more, failed := clean(control.Dir(), session, keepGuards)
		lines, err = append(lines, more...), errors.Join(err, failed)
	}
	return lines, err
}
