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

// killAfter is how long a program that is asked to end may take. A busy machine needs several seconds to end a heddle that
// takes rules and routes back.
const killAfter = 10 * time.Second

// Process is a program that runs inside a host.
type Process struct {
	name   string
	host   *lab.Host
	cancel context.CancelFunc
	signal func(os.Signal) error
	log    tail
	done   chan struct{}
	err    error
}

// Start starts a program inside a host, by its name in PATH or its path.
func Start(ctx context.Context, host *lab.Host, name string, args ...string) (*Process, error) {
	if _, err := exec.LookPath(name); err != nil {
		return nil, missing(name, "apt-get install "+name)
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &Process{name: name, host: host, cancel: cancel, done: make(chan struct{})}
	cmd := host.Command(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killAfter // then SIGKILL
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start %s on %s: %w", name, host.Name(), err)
	}
	p.signal = cmd.Process.Signal
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func missing(name, hint string) error {
	return &path.Error{What: name, Hint: hint, Err: ErrMissing}
}

// Stop asks the program to end, kills it after ten seconds, and waits for it.
func (p *Process) Stop() {
	p.cancel()
	<-p.done
}

// Kill ends the program at once, as a crash would, and waits for it.
func (p *Process) Kill() {
	_ = p.signal(os.Kill) // fails only where it has ended already
	<-p.done
	p.cancel()
}

// Interrupt asks the program to end as somebody at its terminal does, waits for it, and gives what its exit code says.
func (p *Process) Interrupt() error {
	err := p.signal(os.Interrupt)
	<-p.done
	p.cancel()
	return errors.Join(err, p.err)
}

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Log is the end of what the program printed.
func (p *Process) Log() string { return p.log.String() }

// AwaitLog waits until the program has printed the text, and gives up where it ends or after a minute.
func (p *Process) AwaitLog(ctx context.Context, text string) error {
	return p.Await(ctx, func() error {
		if !strings.Contains(p.Log(), text) {
			return fmt.Errorf("it does not say %q", text)
		}
		return nil
	})
}

// Await polls ready until it gives nil, the program ends, or a minute has passed: machines may be busy.
func (p *Process) Await(ctx context.Context, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s on %s ended: %w\n%s", p.name, p.host.Name(), errors.Join(p.err, err), p.Log())
		case <-ctx.Done():
			return fmt.Errorf("%s on %s does not become ready: %w\n%s", p.name, p.host.Name(), err, p.Log())
		case <-tick.C:
		}
	}
}

// started stops the process where what must follow its start fails.
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
