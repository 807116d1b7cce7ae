package split

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/split"
	"heddle/split/backend"
	"heddle/split/kernel"
	"heddle/split/route"
)

// refused reports that this kernel refuses a backend, so that the next one is tried.
func refused(err error) bool { return errors.Is(err, kernel.ErrRefused) }

// openBelow starts a backend below the socket, which has one session.
func openBelow(ctx context.Context, name string, s config.Split, o split.Options, r *runner.Runner, talk io.Writer) (*opened, error) {
	options := backend.Options{Options: o, Dir: control.Dir(), Ready: func(limit string) {
		fmt.Fprintf(talk, "%s: splitting what is sent to %s (backend %s) over %d paths\n", s.SessionName(), s.To, name, len(o.Via))
		tellLimit(talk, s, limit)
		r.Ready()
	}}
	if at, err := netip.ParseAddrPort(s.To); err == nil {
		options.Server = at
	}
	var session interface {
		Run(ctx context.Context) error
		Status() split.Status
		Close() error
	}
	var err error
	if name == "route" {
		session, err = route.Open(ctx, options)
	} else {
		session, err = kernel.Open(ctx, kernel.Options{Options: options, GSOOff: s.GSOOff})
	}
	if err != nil {
		return nil, err
	}
	return &opened{session.Run, func() []split.Status { return []split.Status{session.Status()} }, session.Close}, nil
}

// LeftByBackends says what these backends of the session changed on this machine and did not take back.
func LeftByBackends(session string, backends ...string) (lines []string, err error) {
	for _, name := range backends {
		left := kernel.Left
		if name == "route" {
			left = route.Left
		}
		more, failed := left(control.Dir(), session)
		lines, err = append(lines, more...), errors.Join(err, failed)
	}
	return lines, err
}

// CleanBackends removes what a crash of the session left by these backends.
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
