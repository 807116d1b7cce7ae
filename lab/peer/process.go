package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"heddle/lab"
	"heddle/path"
)

// ErrMissing says that a peer's program is not on this machine.
var ErrMissing = errors.New("the program is not on this machine")

// killAfter is the time from SIGTERM to SIGKILL: on a busy machine heddle needs seconds to remove its rules and routes.
const killAfter = 10 * time.Second

// Process is a program that runs inside a host, or on this machine itself.
type Process struct {
	name   string // with the host
	cmd    *exec.Cmd
	cancel context.CancelFunc
	log    tail
	done   chan struct{}
	err    error
}

// Start starts a program inside a host, by path or by name in PATH.
func Start(ctx context.Context, host *lab.Host, name string, args ...string) (*Process, error) {
	return start(ctx, host.Command, name+" on "+host.Name(), name, args)
}

// StartHere starts a program on this machine itself.
func StartHere(ctx context.Context, name string, args ...string) (*Process, error) {
	return start(ctx, exec.CommandContext, name, name, args)
}

// commander prepares a program, as [lab.Host.Command] and [exec.CommandContext] do.
type commander func(ctx context.Context, name string, args ...string) *exec.Cmd

func start(ctx context.Context, prepare commander, what, name string, args []string) (*Process, error) {
	p, err := newProcess(ctx, prepare, what, name, args)
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, p.refused(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// newProcess prepares a program that ends with ctx.
func newProcess(ctx context.Context, prepare commander, what, name string, args []string) (*Process, error) {
	if _, err := exec.LookPath(name); err != nil {
		return nil, missing(name, "apt-get install "+name)
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &Process{name: what, cmd: prepare(ctx, name, args...), cancel: cancel, done: make(chan struct{})}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = killAfter // then SIGKILL
	return p, nil
}

// refused is the error for a program that did not start.
func (p *Process) refused(err error) error {
	p.cancel()
	return fmt.Errorf("start %s: %w", p.name, err)
}

func missing(name, hint string) error {
	return &path.Error{What: name, Hint: hint, Err: ErrMissing}
}

// Stop sends SIGTERM, and SIGKILL after ten seconds, and waits for the program.
func (p *Process) Stop() {
	p.cancel()
	<-p.done
}

// Kill ends the program at once, like a crash, and waits for it.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended already
	<-p.done
	p.cancel()
}

// Interrupt sends SIGINT, waits for at most about twenty seconds, and returns the exit status as an error.
func (p *Process) Interrupt() error {
	err := p.cmd.Process.Signal(os.Interrupt)
	insist := time.AfterFunc(killAfter, p.cancel)
	<-p.done
	insist.Stop()
	p.cancel()
	return errors.Join(err, p.err)
}

// PID is the id of the program.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Log returns the end of the program's output.
func (p *Process) Log() string { return p.log.String() }

// AwaitLog waits until the program has printed the text. It fails if the program ends, or after a minute.
func (p *Process) AwaitLog(ctx context.Context, text string) error {
	return p.Await(ctx, func() error {
		if !strings.Contains(p.Log(), text) {
			return fmt.Errorf("it does not say %q", text)
		}
		return nil
	})
}

// Await polls ready until it returns nil. It fails if the program ends, or after a minute, since machines may be busy.
func (p *Process) Await(ctx context.Context, ready func() error) error {
	return p.await(ctx, time.Minute, ready)
}

// await is [Process.Await] with another limit.
func (p *Process) await(ctx context.Context, limit time.Duration, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(limit / 12000) // 5 ms of a minute
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w\n%s", p.name, errors.Join(p.err, err), p.Log())
		case <-ctx.Done():
			return fmt.Errorf("%s does not become ready: %w\n%s", p.name, errors.Join(ctx.Err(), err), p.Log())
		case <-tick.C:
		}
	}
}

// started stops the process if err, from the steps after its start, is not nil.
func (p *Process) started(err error) (*Process, error) {
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// tail keeps the last bytes written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
}

const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if extra := len(t.data) - tailBytes; extra > 0 {
		t.data = append(t.data[:0], t.data[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.data))
}
