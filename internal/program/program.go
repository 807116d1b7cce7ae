// Package program runs other programs for tests and experiments, each until it is stopped.
package program

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
)

// killAfter is the time from SIGTERM to SIGKILL: on a busy machine heddle needs seconds to remove its rules and routes.
const killAfter = 10 * time.Second

// Process is a program that was started.
type Process struct {
	name   string
	cmd    *exec.Cmd
	cancel context.CancelFunc
	log    tail
	done   chan struct{}
	err    error
}

// Prepare makes the command of a program, as [exec.CommandContext] does.
type Prepare func(ctx context.Context, name string, args ...string) *exec.Cmd

// Start starts a program, which ends with ctx. Errors call it by what. Its output goes to [Process.Log].
func Start(ctx context.Context, prepare Prepare, what, name string, args ...string) (*Process, error) {
	return StartBy(ctx, prepare, func(c *exec.Cmd) (wait func() error, err error) { return c.Wait, c.Start() }, what, name, args...)
}

// StartBy is [Start] by another function than [exec.Cmd.Start]. That returns one that waits until the program has ended.
func StartBy(ctx context.Context, prepare Prepare, start func(*exec.Cmd) (wait func() error, err error), what, name string, args ...string) (*Process, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &Process{name: what, cmd: prepare(ctx, name, args...), cancel: cancel, done: make(chan struct{})}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = killAfter // then SIGKILL
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	wait, err := start(p.cmd)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", what, err)
	}
	go func() {
		p.err = wait()
		close(p.done)
	}()
	return p, nil
}

// Stop sends SIGTERM, and SIGKILL after ten seconds or the WaitDelay that the command was given, and waits for the program.
func (p *Process) Stop() {
	p.cancel()
	<-p.done
}

// Terminate sends SIGTERM as Stop does, and does not wait.
func (p *Process) Terminate() { p.cancel() }

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

// Name is what errors call it.
func (p *Process) Name() string { return p.name }

// PID is the id of the program.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how a program ended that is done: nil, or mostly an [exec.ExitError].
func (p *Process) Err() error { return p.err }

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
	return p.AwaitFor(ctx, time.Minute, ready)
}

// AwaitFor is [Process.Await] with another limit.
func (p *Process) AwaitFor(ctx context.Context, limit time.Duration, ready func() error) error {
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
			return p.ended(err)
		case <-ctx.Done():
			return fmt.Errorf("%s does not become ready: %w\n%s", p.name, errors.Join(ctx.Err(), err), p.Log())
		case <-tick.C:
		}
	}
}

// Runs returns nil, or an error if the program has ended.
func (p *Process) Runs() error {
	select {
	case <-p.done:
		return p.ended(errors.New("nobody stopped it"))
	default:
		return nil
	}
}

func (p *Process) ended(err error) error {
	return fmt.Errorf("%s ended: %w\n%s", p.name, errors.Join(p.err, err), p.Log())
}

// OrStop stops the program if err, from the steps after its start, is not nil.
func (p *Process) OrStop(err error) (*Process, error) {
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
