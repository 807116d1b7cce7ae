package peer

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"heddle/internal/program"
)

// Devices run heddle commands on hosts, each of which has settings of its own.
type Devices interface {
	// Run runs a heddle command on a host, for a minute at most. It returns its stdout and stderr.
	Run(ctx context.Context, host, input string, args ...string) (out, talk string, err error)
	// Start starts a heddle command on a host, and waits until it prints word.
	Start(ctx context.Context, host, word string, args ...string) (*Process, error)
	// Stop ends all that Start has started, and waits for it: some of it writes files until it ends.
	Stop()
}

// devices implements [Devices]. The settings of a host are in a directory of its name below work.
type devices struct {
	heddle, work string
	on           func(host string) program.Prepare

	mu      sync.Mutex
	running []*Process
}

// Here returns devices that are all this machine itself, with their files below work, an existing directory.
func Here(heddle, work string) Devices {
	return &devices{heddle: heddle, work: work, on: func(string) program.Prepare { return exec.CommandContext }}
}

// Home is a host's HEDDLE_HOME.
func (d *devices) Home(host string) string { return filepath.Join(d.work, host) }

// command returns the arguments of env(1) that run heddle with a host's own settings.
func (d *devices) command(host string, args []string) []string {
	return append([]string{"HEDDLE_HOME=" + d.Home(host), d.heddle}, args...)
}

// Run implements [Devices].
func (d *devices) Run(ctx context.Context, host, input string, args ...string) (out, talk string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := d.on(host)(ctx, "env", d.command(host, args)...)
	var said strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &said
	printed, err := cmd.Output()
	return string(printed), said.String(), err
}

// ran is [Devices.Run] for a command that needs no input.
func ran(ctx context.Context, d Devices, host string, args ...string) (string, error) {
	out, talk, err := d.Run(ctx, host, "", args...)
	if err != nil {
		return "", fmt.Errorf("%s: heddle %s: %w\n%s", host, strings.Join(args, " "), err, talk)
	}
	return out, nil
}

// Start implements [Devices].
func (d *devices) Start(ctx context.Context, host, word string, args ...string) (*Process, error) {
	p, err := start(ctx, d.on(host), "heddle on "+host, "env", d.command(host, args))
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.running = append(d.running, p)
	d.mu.Unlock()
	return p.OrStop(p.AwaitLog(ctx, word))
}

// Stop implements [Devices].
func (d *devices) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.running {
		p.Terminate()
	}
	for _, p := range d.running {
		p.Stop()
	}
}
