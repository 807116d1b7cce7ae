// Package runner runs long-lived commands: it holds a name for `heddle status` and `heddle down`, captures each path if
// asked to, notifies systemd, and shuts down in order.
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

// Taken says what to do if another heddle has the name.
type Taken int

// Refuse fails. AddPID appends the process id and says so. AddNumber takes the first free one of NAME, NAME-2 and so
// on. GoUnseen runs anyway, also if no socket can be made.
const (
	Refuse Taken = iota
	AddPID
	AddNumber
	GoUnseen
)

// Options set a run's name and captures.
type Options struct {
	Name    string
	Taken   Taken
	Talk    io.Writer // for AddPID and GoUnseen
	Capture string    // directory for one capture of each of Paths, or empty
	Paths   []path.Spec
}

// Splitting returns the options of a run that splits sessions.
func Splitting(name, capture string, o split.Options) Options {
	return Options{Name: name, Capture: capture, Paths: slices.Concat(o.Via, o.Beside)}
}

// Runner holds the name and captures of a run.
type Runner struct {
	Name string                        // that it got
	Tap  func(name string) observe.Tap // returns the tap of a path; nil if nothing is captured

	server *control.Server // nil if it goes unseen
	taps   []*observe.FileTap
	status atomic.Pointer[func() control.Status]
	ready  func()
}

// Run takes the name, starts the captures, and runs body, whose context ends with ctx or on a stop request. It releases
// the name after all cleanup: `heddle down` waits for it.
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

// Seen reports whether the run holds its name. If not, nobody can ask for it by the name, and it must have no journal.
func (r *Runner) Seen() bool { return r.server != nil }

// Show sets the run's status from now on. status must be safe to call at any time.
func (r *Runner) Show(status func() control.Status) { r.status.Store(&status) }

func (r *Runner) answer() control.Status {
	if status := r.status.Load(); status != nil {
		return (*status)()
	}
	return control.Status{}
}

// Ready notifies systemd that the run is ready.
func (r *Runner) Ready() { r.ready() }

// mostNumbered bounds the numbers of AddNumber.
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

// close ends the captures and releases the name.
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
