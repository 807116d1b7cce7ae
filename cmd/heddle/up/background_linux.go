package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"heddle/cmd/heddle/internal/control"
	"heddle/path"
)

// backgroundVariable tells a child that its parent reads its standard output until the tunnel is up.
const backgroundVariable = "HEDDLE_BACKGROUND"

// startBackground runs this command line again without --background, in a new session. It copies the child's output
// until the child closes it: when it is up, or when it ends.
func startBackground(ctx context.Context, name string, out io.Writer) error {
	log, err := backgroundLog(name)
	if err != nil {
		return err
	}
	defer log.Close()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(program, foregroundArguments(os.Args[1:])...)
	child.Env = append(os.Environ(), backgroundVariable+"=1")
	child.Stderr = log
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	said, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return &path.Error{What: "background", Why: "it cannot start", Err: err}
	}
	// Interrupting the parent ends the tunnel.
	stop := context.AfterFunc(ctx, func() { _ = child.Process.Signal(syscall.SIGTERM) })
	_, copyErr := io.Copy(out, said)
	stop()
	return errors.Join(copyErr, outcomeOf(ctx, child, name, log.Name()))
}

// foregroundArguments removes --background in all its spellings.
func foregroundArguments(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		return a == "--background" || strings.HasPrefix(a, "--background=")
	})
}

// outcomeOf distinguishes a child that is up from one that ended.
func outcomeOf(ctx context.Context, child *exec.Cmd, name, log string) error {
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	select {
	case err := <-ended:
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		said, _ := os.ReadFile(log)
		return &path.Error{What: name, Why: "it is not up", Err: err, Hint: "its log, " + log + ", says:\n" + strings.TrimSpace(string(said))}
	case <-time.After(100 * time.Millisecond): // an ending process closes its files first
		return child.Process.Release()
	}
}

func backgroundLog(name string) (*os.File, error) {
	dir := control.Dir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, name+".log")
	log, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, &path.Error{What: "log " + file, Why: "it cannot be written", Err: err}
	}
	return log, nil
}

// leaveParent tells a waiting parent that the tunnel is up, by closing the pipe that it reads.
func leaveParent() {
	if os.Getenv(backgroundVariable) == "" {
		return
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, "heddle:", err)
		return
	}
	defer null.Close()
	if err := syscall.Dup3(int(null.Fd()), int(os.Stdout.Fd()), 0); err != nil {
		fmt.Fprintln(os.Stderr, "heddle:", err)
	}
}
