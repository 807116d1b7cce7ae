// Package openvswitch runs an Open vSwitch in a network namespace, beside the machine's own, for tests and experiments.
package openvswitch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"heddle/internal/errhint"
	"heddle/internal/program"
)

// patience is how long a program may take to start or to end on a busy machine.
const patience = 2 * time.Minute

// schema is where Debian has the one of the database.
const schema = "/usr/share/openvswitch/vswitch.ovsschema"

// Switch is an Open vSwitch whose datapath is in its process ovs-vswitchd, not in the kernel.
type Switch struct {
	dir                string
	in                 func(func() error) error
	database, vswitchd *program.Process
}

// Supported returns nil, or an error with a hint if this machine has no Open vSwitch.
func Supported() error {
	for _, name := range []string{"ovsdb-server", "ovs-vswitchd"} {
		if _, err := exec.LookPath(name); err != nil {
			return &errhint.Error{What: name, Hint: "apt-get install openvswitch-switch", Err: err}
		}
	}
	return nil
}

// Start starts one with its files in an existing directory, which is empty and whose path is short: that of a socket has 107 bytes at most. It ends
// with ctx or by Close. All its programs run inside in, which calls a function on a thread in a network namespace.
func Start(ctx context.Context, dir string, in func(func() error) error) (*Switch, error) {
	if err := Supported(); err != nil {
		return nil, err
	}
	s := &Switch{dir: dir, in: in}
	err := s.tool("ovsdb-tool", "create", s.file("conf.db"), schema)
	if err == nil {
		s.database, err = s.start(ctx, s.listens, "ovsdb-server", s.file("conf.db"), "--remote=punix:"+s.file("db.sock"))
	}
	if err == nil {
		err = s.tool("ovs-vsctl", "--no-wait", "init")
	}
	if err == nil {
		err = s.Restart(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Switch) file(name string) string { return filepath.Join(s.dir, name) }

func (s *Switch) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = os.Environ()
	for _, what := range []string{"RUN", "LOG", "DB", "SYSCONF"} {
		c.Env = append(c.Env, "OVS_"+what+"DIR="+s.dir)
	}
	return c
}

// run runs a program that ends by itself, and returns what it says.
func (s *Switch) run(name string, args ...string) (string, error) {
	c := s.command(context.Background(), name, args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := s.in(c.Run)
	return out.String(), err
}

func (s *Switch) tool(name string, args ...string) error {
	out, err := s.run(name, args...)
	if err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}

// start starts a program that runs until it is stopped, and waits until it is ready.
func (s *Switch) start(ctx context.Context, ready func() error, name string, args ...string) (*program.Process, error) {
	p, err := program.StartBy(ctx, s.command, s.inside, name, name, append(args, "--pidfile", "-vsyslog:off", "-vfile:off", "-vconsole:info")...)
	if err != nil {
		return nil, err
	}
	return p.OrStop(p.AwaitFor(ctx, patience, ready))
}

// inside starts a command in the network namespace. It dies with this process: the kernel kills it when the thread ends that started it, so
// that thread waits for it.
func (s *Switch) inside(c *exec.Cmd) (wait func() error, err error) {
	c.WaitDelay = patience
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		ended <- s.in(func() error {
			err := c.Start()
			started <- err
			return cmp.Or(err, c.Wait())
		})
	}()
	return func() error { return <-ended }, <-started
}

// stop ends a program, if there is one. It returns an error if it had ended before.
func stop(p *program.Process) error {
	if p == nil {
		return nil
	}
	err := p.Runs()
	p.Stop()
	return err
}

// Restart ends the process that switches, if there is one, and starts another one. Bridges stay, and their flows do not.
func (s *Switch) Restart(ctx context.Context) error {
	err := stop(s.vswitchd)
	if err == nil {
		s.vswitchd, err = s.start(ctx, s.runs, "ovs-vswitchd", "unix:"+s.file("db.sock"))
	}
	return err
}

// listens reports why the database cannot be reached, or nil. Its socket has a file before it listens.
func (s *Switch) listens() error {
	c, err := net.Dial("unix", s.file("db.sock"))
	if err != nil {
		return err
	}
	return c.Close()
}

// runs reports whether the process that switches has started.
func (s *Switch) runs() error {
	_, err := os.Stat(s.file("ovs-vswitchd.pid"))
	return err
}

// Close ends its programs. It returns an error if one had ended before.
func (s *Switch) Close() error {
	return errors.Join(stop(s.vswitchd), stop(s.database))
}

// Bridge makes a bridge with devices as its ports. It is a device of its own too. A datapath in a process gets a copy of what arrives, so nftables
// keep the kernel from handling the same packets.
func (s *Switch) Bridge(name string, devices ...string) error {
	args := []string{"add-br", name, "--", "set", "bridge", name, "datapath_type=netdev"}
	rules := "table netdev " + name + " {\n"
	for _, d := range devices {
		args = append(args, "--", "add-port", name, d)
		rules += "chain " + d + " { type filter hook ingress device " + d + " priority 0; policy drop; }\n"
	}
	if err := s.tool("nft", rules+"}"); err != nil {
		return err
	}
	return s.tool("ovs-vsctl", args...)
}

// Socket returns the file of the socket at which a bridge is managed.
func (s *Switch) Socket(bridge string) string { return s.file(bridge + ".mgmt") }

// Flows returns the flows of a bridge, one a line, as ovs-ofctl writes them, or what it says if there is no bridge.
func (s *Switch) Flows(bridge string) string {
	out, _ := s.run("ovs-ofctl", "--protocols=OpenFlow14", "--no-stats", "dump-flows", "unix:"+s.Socket(bridge))
	return strings.TrimSpace(out)
}

// Speak lets a bridge speak one version of OpenFlow alone, as ovs-vsctl names it.
func (s *Switch) Speak(bridge, version string) error {
	return s.tool("ovs-vsctl", "set", "bridge", bridge, "protocols="+version)
}
