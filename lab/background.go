package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/path"
)

// Find returns the world with that name from [Worlds].
func Find(name string) (World, error) {
	var names []string
	for _, w := range Worlds() {
		if w.Name == name {
			return w, nil
		}
		names = append(names, w.Name)
	}
	return World{}, &path.Error{What: "world " + name, Why: "no world is called that", Hint: "worlds: " + strings.Join(names, ", ")}
}

// readyLine is what a background owner prints once the world is complete. Any other output is an error.
const readyLine = "ready\n"

// Start makes a named world in a new process: this program with args. It waits until it is complete. [TakeDown] ends it.
func Start(ctx context.Context, args ...string) error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.ExtraFiles = []*os.File{in}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	err = cmd.Start()
	in.Close()
	if err != nil {
		return err
	}
	answered := make(chan []byte, 1)
	go func() {
		said, _ := io.ReadAll(io.LimitReader(out, 1<<16))
		answered <- said
	}()
	select {
	case said := <-answered:
		if string(said) == readyLine {
			return cmd.Process.Release()
		}
		waitErr := cmd.Wait()
		what, hint, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
		if what == "" {
			return fmt.Errorf("the world's process ended: %w", waitErr)
		}
		return &path.Error{What: what, Hint: hint}
	case <-ctx.Done():
		cmd.Process.Signal(syscall.SIGTERM)
		return errors.Join(ctx.Err(), cmd.Wait())
	}
}

// Serve runs in the process that [Start] makes: it makes the world, starts its programs with furnish if that is not nil, reports on
// file descriptor 3, and runs until ctx ends.
func Serve(ctx context.Context, world World, options Options, furnish func(context.Context, *Instance) error) error {
	say := os.NewFile(3, "ready")
	if say == nil {
		return errors.New("file descriptor 3 is not open: this is started by heddle lab up")
	}
	unix.CloseOnExec(3) // the programs of the world live on after the report
	options.Background = true
	in, err := Up(ctx, world, options)
	if err == nil && furnish != nil {
		if err = furnish(ctx, in); err != nil {
			err = errors.Join(err, in.Down())
		}
	}
	if err != nil {
		fmt.Fprintln(say, err)
		fmt.Fprintln(say, errhint.Of(err))
		return errors.Join(err, say.Close())
	}
	if _, err := io.WriteString(say, readyLine); err != nil {
		return errors.Join(err, in.Down()) // the process that called Start is gone
	}
	say.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return in.Down()
		case <-tick.C:
			if err := in.writeLinks(); err != nil {
				return errors.Join(err, in.Down())
			}
		}
	}
}

// LinkStatus is what the owner of a world records about an emulated link each second.
type LinkStatus struct {
	Name     string   `json:"name"`
	AtoB     Counters `json:"a_to_b"`
	BtoA     Counters `json:"b_to_a"`
	Lateness Lateness `json:"lateness_ms"`
}

func linksFile(instance string) string { return filepath.Join(dir(instance), "links.json") }

func (in *Instance) writeLinks() error {
	links, _, err := in.Status()
	if err != nil {
		return err
	}
	return writeJSON(linksFile(in.state.Name), links)
}

// ReadLinkStatus returns what the owner of a background world last recorded: nothing in its first second.
func ReadLinkStatus(instance string) ([]LinkStatus, error) {
	data, err := os.ReadFile(linksFile(instance))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []LinkStatus
	err = json.Unmarshal(data, &all)
	return all, err
}
