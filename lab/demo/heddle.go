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

// withHeddle runs `heddle up` until use returns. cmd must not be started yet.
func withHeddle(ctx context.Context, cmd *exec.Cmd, talk io.Writer, use func() error) error {
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
	up, drained := make(chan bool, 1), make(chan struct{})
	go func() {
		defer close(drained)
		told := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(talk, "  heddle:", lines.Text())
			if !told && strings.Contains(lines.Text(), " is up: ") {
				told = true
				up <- true
			}
		}
		if !told {
			up <- false
		}
	}()
	var used error
	select {
	case whole := <-up:
		if whole {
			used = use()
		} else {
			used = errors.New("it ended before it was up")
		}
	case <-time.After(upWithin):
		used = fmt.Errorf("it is not up within %v", upWithin)
	case <-ctx.Done():
		used = ctx.Err()
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(downWithin, func() { _ = cmd.Process.Kill() })
	<-drained
	ended := cmd.Wait()
	kill.Stop()
	if used == nil && ended == nil {
		return nil
	}
	return &path.Error{What: "heddle up", Why: lastLine(log.String()), Err: errors.Join(used, ended)}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
