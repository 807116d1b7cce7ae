// Package ovstest runs a private Open vSwitch for tests, with its datapath in the process. Do not import it outside tests.
package ovstest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"heddle/internal/polltest"
)

// schema is where Debian has the one of the database.
const schema = "/usr/share/openvswitch/vswitch.ovsschema"

// Switch is an Open vSwitch that runs in the network namespace in which it was started.
type Switch struct {
	dir      string
	in       func(func() error) error
	vswitchd *exec.Cmd
}

// Start starts one that ends with the test. Its programs run inside in, as does all that the functions of Switch do. Without Open vSwitch it
// skips the test.
func Start(t testing.TB, in func(func() error) error) *Switch {
	t.Helper()
	for _, program := range []string{"ovsdb-server", "ovs-vswitchd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("typed skip: apt-get install openvswitch-switch:", err)
		}
	}
	// The path of a socket has 107 bytes at most.
	dir, err := os.MkdirTemp("", "heddle-ovs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Switch{dir: dir, in: in}
	s.tool(t, "ovsdb-tool", "create", s.file("conf.db"), schema)
	s.start(t, "db.sock", "ovsdb-server", s.file("conf.db"), "--remote=punix:"+s.file("db.sock"))
	s.tool(t, "ovs-vsctl", "--no-wait", "init")
	s.Restart(t)
	return s
}

func (s *Switch) file(name string) string { return filepath.Join(s.dir, name) }

func (s *Switch) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = os.Environ()
	for _, what := range []string{"RUN", "LOG", "DB", "SYSCONF"} {
		c.Env = append(c.Env, "OVS_"+what+"DIR="+s.dir)
	}
	return c
}

// run runs a program that ends by itself, and returns what it says.
func (s *Switch) run(name string, args ...string) (string, error) {
	c := s.command(name, args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := s.in(c.Run)
	return out.String(), err
}

// tool is run, and fails the test if the program fails.
func (s *Switch) tool(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := s.run(name, args...); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// start starts a program, and waits until it has made a file.
func (s *Switch) start(t testing.TB, file, name string, args ...string) *exec.Cmd {
	t.Helper()
	c := s.command(name, append(args, "--pidfile", "--log-file", "-vconsole:off")...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.in(c.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end(t, c) })
	polltest.Until(t, func() error {
		_, err := os.Stat(s.file(file))
		return err
	})
	return c
}

func (s *Switch) end(t testing.TB, c *exec.Cmd) {
	t.Helper()
	if c.ProcessState != nil {
		return
	}
	err := c.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(polltest.Patience, func() { _ = c.Process.Kill() })
	defer late.Stop()
	if ended := c.Wait(); errors.Is(ended, os.ErrProcessDone) || err != nil {
		t.Errorf("%s ended: %v, %v", c.Path, err, ended)
	}
}

// Restart ends the process that switches, if there is one, and starts another one. Bridges stay, and their flows do not.
func (s *Switch) Restart(t testing.TB) {
	t.Helper()
	if s.vswitchd != nil {
		s.end(t, s.vswitchd)
	}
	s.vswitchd = s.start(t, "ovs-vswitchd.pid", "ovs-vswitchd", "unix:"+s.file("db.sock"))
}

// Bridge makes a bridge with devices as its ports. It is a device of its own too. A datapath in a process gets a copy of what arrives, so nftables
// keep the kernel from handling the same packets.
func (s *Switch) Bridge(t testing.TB, name string, devices ...string) {
	t.Helper()
	args := []string{"add-br", name, "--", "set", "bridge", name, "datapath_type=netdev"}
	rules := "table netdev " + name + " {\n"
	for _, d := range devices {
		args = append(args, "--", "add-port", name, d)
		rules += "chain " + d + " { type filter hook ingress device " + d + " priority 0; policy drop; }\n"
	}
	s.tool(t, "nft", rules+"}")
	s.tool(t, "ovs-vsctl", args...)
}

// Socket returns the file of the socket at which a bridge is managed.
func (s *Switch) Socket(bridge string) string { return s.file(bridge + ".mgmt") }

// Flows returns the flows of a bridge, one a line, as ovs-ofctl writes them, or what it says if there is no bridge.
func (s *Switch) Flows(bridge string) string {
	out, _ := s.run("ovs-ofctl", "--protocols=OpenFlow14", "--no-stats", "dump-flows", "unix:"+s.Socket(bridge))
	return strings.TrimSpace(out)
}

// Speak lets a bridge speak one version of OpenFlow alone, as ovs-vsctl names it.
func (s *Switch) Speak(t testing.TB, bridge, version string) {
	t.Helper()
	s.tool(t, "ovs-vsctl", "set", "bridge", bridge, "protocols="+version)
}
