// Package runner runs what lives until it is interrupted: under a name that `heddle status` and `heddle down` know, with a
// capture for each path where one is asked for, and with an end in order.
package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"heddle/cmd/heddle/internal/control"
	"heddle/observe"
	"heddle/path"
	"heddle/split"
)

// Taken says what to do where another heddle has the name.
type Taken int

// Refuse fails. AddPID takes the name with the process's number behind it, and says so. AddNumber takes the first free one
// of NAME, NAME-2 and so on. GoUnseen runs all the same, also where no socket can be made.
const (
	Refuse Taken = iota
	AddPID
	AddNumber
	GoUnseen
)

// Options say how a run is known and what is captured.
type Options struct {
	Name  string
	Taken Taken
	Talk  io.Writer // for AddPID and GoUnseen
	// Capture is a directory that gets one capture for each of Paths, or empty.
	Capture string
	Paths   []path.Spec
}

// Runner holds a name, and the captures of a run.
type Runner struct {
	// Name is the name that it got.
	Name string
	// Tap gives the tap of a path; it is nil where nothing is captured.
	Tap func(name string) observe.Tap

	server *control.Server // nil where it goes unseen
	taps   []*observe.FileTap
}

// Start takes the name and starts the captures. Work that needs the name, such as cleaning up after a crash, must follow it.
func Start(o Options) (*Runner, error) {
	r := &Runner{Name: o.Name}
	if err := r.listen(o); err != nil {
		return nil, err
	}
	if err := r.capture(o); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// mostNumbered is how many runs AddNumber gives a name.
const mostNumbered = 100

func (r *Runner) listen(o Options) (err error) {
	r.server, err = control.Listen(o.Name)
	_, taken := errors.AsType[*control.RunningError](err)
	switch {
	case err == nil:
	case o.Taken == AddPID && taken:
		r.Name = fmt.Sprintf("%s-%d", o.Name, os.Getpid())
		server, failed := control.Listen(r.Name)
		if failed != nil {
			return err
		}
		fmt.Fprintf(o.Talk, "%v: heddle status and heddle down know this one as %s\n", err, r.Name)
		r.server = server
	case o.Taken == AddNumber:
		for i := 2; taken && i <= mostNumbered; i++ {
			r.Name = fmt.Sprintf("%s-%d", o.Name, i)
			r.server, err = control.Listen(r.Name)
			_, taken = errors.AsType[*control.RunningError](err)
		}
		return err
	case o.Taken == GoUnseen:
		fmt.Fprintln(o.Talk, "warning: heddle status will not show it:", err)
	default:
		return err
	}
	return nil
}

func (r *Runner) capture(o Options) error {
	if o.Capture == "" {
		return nil
	}
	files := map[string]observe.Tap{}
	for _, spec := range o.Paths {
		f, err := observe.NewFileTap(o.Capture, spec.Name, spec.String())
		if err != nil {
			return err
		}
		files[spec.Name], r.taps = f, append(r.taps, f)
	}
	r.Tap = func(name string) observe.Tap { return files[name] }
	return nil
}

// Run runs body, and answers for its sessions while it does. Its context ends with ctx, or when somebody asks it to stop.
func (r *Runner) Run(ctx context.Context, sessions func() []split.Status, body func(context.Context) error) error {
	if r.server == nil {
		return body(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	answered := make(chan error, 1)
	go func() { answered <- r.server.Serve(ctx, sessions, stop) }()
	err := body(ctx)
	stop()
	return errors.Join(err, <-answered)
}

// Close ends the captures, and gives the name up. Call it last, when nothing of the run is left: heddle down waits for it.
func (r *Runner) Close() error {
	var errs []error
	for _, f := range r.taps {
		errs = append(errs, f.Close())
	}
	if r.server != nil {
		errs = append(errs, r.server.Close())
	}
	return errors.Join(errs...)
}

// Run runs body as one of the kinds of package control; status gives what it says of itself.
func Run[S any](ctx context.Context, o Options, kind string, status func() S, body func(context.Context) error) error {
	r, err := Start(o)
	if err != nil {
		return err
	}
	if r.server != nil {
		r.server.Answers(kind, func() any { return status() })
	}
	return errors.Join(r.Run(ctx, func() []split.Status { return nil }, body), r.Close())
}
