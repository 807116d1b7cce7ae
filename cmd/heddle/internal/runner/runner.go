// Package runner runs what lives until it is interrupted: under a name that `heddle status` and `heddle down` know, with a
// capture for each path where one is asked for, with a word to systemd, and with an end in order.
package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"

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

// Splitting are the options of a run that splits sessions.
func Splitting(name, capture string, o split.Options) Options {
	return Options{Name: name, Capture: capture, Paths: slices.Concat(o.Via, o.Beside)}
}

// Runner holds a name, and the captures of a run.
type Runner struct {
	// Name is the name that it got.
	Name string
	// Tap gives the tap of a path; it is nil where nothing is captured.
	Tap func(name string) observe.Tap

	server *control.Server // nil where it goes unseen
	taps   []*observe.FileTap
	status atomic.Pointer[func() control.Status]
	ready  func()
}

// Run takes the name, starts the captures, and runs body, whose context ends with ctx or when somebody asks the run to stop.
// The name is free again once nothing of the run is left: `heddle down` waits for it.
func Run(ctx context.Context, o Options, body func(context.Context, *Runner) error) (err error) {
	r := &Runner{Name: o.Name, ready: readyOf(ctx)}
	if err := r.listen(o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.capture(o); err != nil {
		return err
	}
	if r.server == nil {
		return body(ctx, r)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	answered := make(chan error, 1)
	go func() { answered <- r.server.Serve(ctx, r.answer, stop) }()
	err = body(ctx, r)
	stop()
	return errors.Join(err, <-answered)
}

// Show has the run answer for itself from now on. status must be safe to call at any time.
func (r *Runner) Show(status func() control.Status) { r.status.Store(&status) }

func (r *Runner) answer() control.Status {
	if status := r.status.Load(); status != nil {
		return (*status)()
	}
	return control.Status{}
}

// Ready says that the run does what it is there for. systemd hears it.
func (r *Runner) Ready() { r.ready() }

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

// close ends the captures, and gives the name up.
func (r *Runner) close() error {
	var errs []error
	for _, f := range r.taps {
		errs = append(errs, f.Close())
	}
	if r.server != nil {
		errs = append(errs, r.server.Close())
	}
	return errors.Join(errs...)
}
