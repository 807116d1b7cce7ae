// Package units starts the units of systemd in dist, sandboxes and all, by systemd itself: in namespaces and a control group of its own.
package units

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/lab/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

const (
	systemd = "/lib/systemd/systemd"
	dist    = "../../dist"
	// noOverlay is the exit status of testdata/boot.sh on a machine whose root takes no overlay.
	noOverlay = 77
)

// machine is a systemd that runs.
type machine struct {
	t   *testing.T
	pid int // as this process sees it
}

func boot(t *testing.T) *machine {
	labtest.Need(t)
	if _, err := os.Stat(systemd); err != nil {
		t.Skip("typed skip:", err, "apt-get install systemd")
	}
	m := &machine{t: t}
	group := controlGroup(t)
	script, err := filepath.Abs("testdata/boot.sh")
	if err != nil {
		t.Fatal(err)
	}
	units, err := filepath.Abs(dist)
	if err != nil {
		t.Fatal(err)
	}
	var talk bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	c := exec.CommandContext(ctx, "sh", "-c", `echo $$ > "$0/cgroup.procs"; exec unshare --mount --pid --fork --kill-child --ipc --uts --net --cgroup --mount-proc bash "$@"`,
		group, script, units, labtest.Heddle)
	c.Stdout, c.Stderr, c.WaitDelay = &talk, &talk, 10*time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		said, _ := os.ReadFile(fmt.Sprintf("/proc/%d/root/run/units.log", m.pid))
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("systemd: %s\nunits: %s", &talk, said)
		}
	})
	polltest.Await(t, "systemd runs", func() bool {
		select {
		case err := <-ended:
			ended <- err
			if c.ProcessState.ExitCode() == noOverlay {
				t.Skip("typed skip: no overlay of the root is possible:", talk.String())
			}
			t.Fatalf("systemd has ended: %v", err)
		default:
		}
		return m.booted(c.Process.Pid)
	})
	return m
}

// controlGroup makes one that is removed, with those in it, when the test ends.
func controlGroup(t *testing.T) string {
	root := "/sys/fs/cgroup"
	if one := filepath.Join(root, "systemd"); exists(one) { // version 1
		root = one
	}
	group, err := os.MkdirTemp(root, "heddle-units-")
	if err != nil {
		t.Skip("typed skip: no control group:", err)
	}
	t.Cleanup(func() {
		polltest.Await(t, "the control group is removed", func() bool {
			var all []string
			_ = filepath.WalkDir(group, func(file string, entry fs.DirEntry, _ error) error {
				if entry != nil && entry.IsDir() {
					all = append(all, file)
				}
				return nil
			})
			for i := len(all) - 1; i >= 0; i-- {
				_ = os.Remove(all[i])
			}
			return !exists(group)
		})
	})
	return group
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// booted reports whether the systemd below a process is ready.
func (m *machine) booted(unshare int) bool {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", unshare))
	if err != nil {
		return false
	}
	if m.pid, err = strconv.Atoi(strings.TrimSpace(string(children))); err != nil {
		return false
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", m.pid))
	if err != nil || strings.TrimSpace(string(name)) != "systemd" {
		return false
	}
	_, err = m.run("systemctl", "is-active", "nothing.target")
	return err == nil
}

// run runs a program in the machine.
func (m *machine) run(argv ...string) (string, error) {
	out, err := exec.Command("nsenter", append([]string{"--target", strconv.Itoa(m.pid), "--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--"}, argv...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out), err
}

var runDir = regexp.MustCompile(`HEDDLE_RUN_DIR=(\S+)`)

// serves waits until a unit has started once, and heddle status shows what runs in it.
func (m *machine) serves(unit string) {
	m.t.Helper()
	file, instance, template := strings.Cut(unit, "@")
	if template {
		file += "@"
	}
	text, err := os.ReadFile(filepath.Join(dist, file+".service"))
	if err != nil {
		m.t.Fatal(err)
	}
	dir := runDir.FindSubmatch(text)
	if dir == nil {
		m.t.Fatalf("%s says nothing of its run directory", unit)
	}
	if _, err := m.run("systemctl", "restart", unit); err != nil {
		m.t.Error(err)
		return
	}
	polltest.Until(m.t, func() error {
		if n, err := m.run("systemctl", "show", "--value", "-p", "NRestarts", unit); err != nil || strings.TrimSpace(n) != "0" {
			m.t.Fatalf("%s was started again %s times, %v", unit, strings.TrimSpace(n), err)
		}
		out, err := m.run("env", strings.Replace(string(dir[0]), "%i", instance, 1), "/usr/local/bin/heddle", "status", "--json")
		var shown struct{ Running []json.RawMessage }
		if err == nil {
			err = json.Unmarshal([]byte(out), &shown)
		}
		if err == nil && len(shown.Running) != 1 {
			err = fmt.Errorf("heddle status shows %d in %s", len(shown.Running), unit)
		}
		return err
	})
}

// Each unit starts in its sandbox with the files that its first lines ask for, and heddle status shows it.
func TestUnitsStart(t *testing.T) {
	m := boot(t)
	for _, unit := range []string{"heddle-switch", "heddle-pseudonym", "heddle-tenant", "heddle-agent", "heddle-board", "heddle-node", "heddle-bridge", "heddle-stream@ssh"} {
		m.serves(unit)
	}
	if _, err := m.run("ln", "-sf", "switch-nft.toml", "/etc/heddle/switch.toml"); err != nil {
		t.Fatal(err)
	}
	m.serves("heddle-switch")
}
