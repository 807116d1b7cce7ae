package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"heddle/path"
)

const (
	upWithin   = 30 * time.Second
	downWithin = 10 * time.Second
)

// withHeddle runs `heddle up` until use returns, which gets the line that says it is up. cmd must not be started yet.
func withHeddle(ctx context.Context, cmd *exec.Cmd, talk io.Writer, use func(said string) error) error {
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = downWithin
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start heddle: %w", err)
	}
	up, drained := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(drained)
		told := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(talk, "  heddle:", lines.Text())
			if !told && strings.Contains(lines.Text(), " is up: ") {
				told = true
				up <- lines.Text()
			}
		}
		if !told {
			up <- ""
		}
	}()
	var used error
	select {
	case said := <-up:
		if said != "" {
			used = use(said)
		} else {
			used = errNotUp
		}
	case <-time.After(upWithin):
		used = fmt.Errorf("%w within %v", errNotUp, upWithin)
	case <-ctx.Done():
		used = ctx.Err()
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(downWithin, func() { _ = cmd.Process.Kill() })
	<-drained
	ended := cmd.Wait()
	kill.Stop()
	if ended != nil || errors.Is(used, errNotUp) {
		return &path.Error{What: "heddle up", Why: strings.TrimSpace(log.String()), Err: errors.Join(used, ended)}
	}
	return used
}

var errNotUp = errors.New("it is not up")
