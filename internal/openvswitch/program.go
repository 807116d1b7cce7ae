package openvswitch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// patience is how long a program may take to start or to end on a busy machine.
const patience = 2 * time.Minute

// program is one that runs until it is stopped.
type program struct {
	cmd   *exec.Cmd
	log   string        // its file
	ended chan struct{} // closed after err is set
	err   error
}

// start starts a program, and waits until it is ready.
func (s *Switch) start(ctx context.Context, ready func() error, name string, args ...string) (*program, error) {
	p := &program{cmd: s.command(name, append(args, "--pidfile", "--log-file", "-vconsole:off")...), log: s.file(name + ".log"), ended: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// The kernel sends that signal when the thread ends that started the program, so that thread waits for the program.
	started := make(chan error, 1)
	go func() {
		defer close(p.ended)
		p.err = s.in(func() error {
			err := p.cmd.Start()
			started <- err
			return cmp.Or(err, p.cmd.Wait())
		})
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = p.cmd.Process.Signal(syscall.SIGTERM) })
	return p, p.await(ctx, ready)
}

func (p *program) await(ctx context.Context, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.early()
		case <-ctx.Done():
			return fmt.Errorf("%s does not become ready: %w", p.cmd.Path, errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

// early is the error for a program that ended though nobody stopped it.
func (p *program) early() error {
	log, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s ended: %v\n%s", p.cmd.Path, p.err, log)
}

// stop ends a program, if there is one, and waits for it. It returns an error if it had ended before.
func (p *program) stop() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.ended:
		return p.early()
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	<-p.ended
	return nil
}
