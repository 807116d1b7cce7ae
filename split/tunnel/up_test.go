package tunnel

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const isUp = " is up: "

func TestUpAndDown(t *testing.T) {
	c := newClient(t)
	before := machine(t)
	r := c.start(isUp)
	if page, err := c.fetch(); page != "inside" {
		t.Errorf("curl got %q, %v", page, err)
	}
	if c.leaks() {
		t.Error("another program's packet left by the default route")
	}
	if got := c.text(c.resolv); !strings.Contains(got, "nameserver 10.99.0.1\n") || strings.Contains(got, "192.0.2.53") {
		t.Errorf("resolv.conf is %q", got)
	}
	if out, err := c.run(c.upArguments()...); err == nil || !strings.Contains(out, "is already running") || !strings.Contains(out, "hint:") {
		t.Errorf("a second start: %v, %s", err, out)
	}
	if page, err := c.fetch(); page != "inside" {
		t.Errorf("after a second start curl got %q, %v", page, err)
	}
	if out, err := c.run("down", c.name); err != nil || !strings.Contains(out, c.name+" is down") {
		t.Errorf("down: %v, %s", err, out)
	}
	if err := <-r.done; err != nil {
		t.Errorf("up ended with %v\n%s", err, r.out)
	}
	c.restored(before, "up N\npredown N\npostdown N\n")
	if strings.Contains(r.out.String(), strings.Fields(c.text(c.conf))[3]) {
		t.Error("the private key is in the output")
	}
}

// restored checks that nothing of the tunnel is left on the machine.
func (c *client) restored(before, hooks string) {
	c.t.Helper()
	if after := machine(c.t); after != before {
		c.t.Errorf("the machine is left as\n%s\nwant\n%s", after, before)
	}
	if got := c.text(c.resolv); got != oldResolver {
		c.t.Errorf("resolv.conf is %q", got)
	}
	if got := strings.ReplaceAll(c.text(filepath.Join(c.dir, "hooks")), c.name, "N"); got != hooks {
		c.t.Errorf("commands wrote %q, want %q", got, hooks)
	}
	if got := c.text(journalFile(filepath.Join(c.dir, "run"), c.name)); got != "" {
		c.t.Errorf("the journal is left: %s", got)
	}
	if !c.leaks() {
		c.t.Error("the kill switch is still up")
	}
}

func TestSigtermTakesAllBack(t *testing.T) {
	c := newClient(t)
	before := machine(t)
	r := c.start(isUp)
	if err := r.signal(t, syscall.SIGTERM); err != nil {
		t.Errorf("up ended with %v\n%s", err, r.out)
	}
	c.restored(before, "up N\npredown N\npostdown N\n")
}

func TestSigtermWhileNoPathAnswers(t *testing.T) {
	c := newClient(t)
	c.write(c.conf, strings.Replace(c.text(c.conf), serverAddress+":51820", serverAddress+":9", 1))
	before := machine(t)
	r := c.start("required paths answer")
	if c.leaks() {
		t.Error("a packet left while the paths are being proved")
	}
	if err := r.signal(t, syscall.SIGTERM); err != nil {
		t.Errorf("up ended with %v\n%s", err, r.out)
	}
	c.restored(before, "")
}

func TestSigkillThenDown(t *testing.T) {
	c := newClient(t)
	before := machine(t)
	_ = c.start(isUp).signal(t, syscall.SIGKILL)
	if c.leaks() {
		t.Error("the kill switch fell with the process")
	}
	if out, err := c.run("down", c.name); err != nil || !strings.Contains(out, "a crash left this, taken back: nft add table") {
		t.Errorf("down: %v, %s", err, out)
	}
	c.restored(before, "up N\npredown N\npostdown N\n")
	if out, err := c.run("down", c.name); err == nil || !strings.Contains(out, "is not running") {
		t.Errorf("a second down: %v, %s", err, out)
	}
}

func TestSigkillThenUp(t *testing.T) {
	c := newClient(t)
	before := machine(t)
	_ = c.start(isUp).signal(t, syscall.SIGKILL)
	r := c.start(isUp)
	if page, err := c.fetch(); page != "inside" {
		t.Errorf("curl got %q, %v", page, err)
	}
	if c.leaks() {
		t.Error("no kill switch after the second start")
	}
	if err := r.signal(t, syscall.SIGTERM); err != nil {
		t.Errorf("up ended with %v\n%s", err, r.out)
	}
	once := "up N\npredown N\npostdown N\n"
	c.restored(before, once+once)
}

// A start that fails after a crash leaves the kill switch of the crashed session up.
func TestSigkillThenAStartThatFails(t *testing.T) {
	c := newClient(t)
	_ = c.start(isUp).signal(t, syscall.SIGKILL)
	if out, err := c.run(append(c.upArguments(), "--mtu", "100")...); err == nil {
		t.Errorf("it started: %s", out)
	}
	if c.leaks() {
		t.Error("the kill switch is gone")
	}
	// Who asks it to end means all of it, also what the crash left.
	r := c.start("required paths answer", "--via", "c=src:203.0.113.77", "--min-paths", "3")
	if c.leaks() {
		t.Error("the kill switch fell while the second start waits")
	}
	if err := r.signal(t, syscall.SIGTERM); err != nil {
		t.Errorf("up ended with %v\n%s", err, r.out)
	}
	if !c.leaks() {
		t.Error("the kill switch is still up")
	}
}

func TestBackground(t *testing.T) {
	c := newClient(t)
	before := machine(t)
	t.Cleanup(func() { _, _ = c.run("down", c.name) }) // where the test fails
	out, err := c.run(append(c.upArguments(), "--background", "--kill-switch=false", "--no-hooks")...)
	if err != nil || !strings.Contains(out, isUp) {
		t.Fatalf("%v: %s", err, out)
	}
	if page, err := c.fetch(); page != "inside" {
		t.Errorf("curl got %q, %v", page, err)
	}
	if !c.leaks() {
		t.Error("there is a kill switch that was not asked for")
	}
	if out, err := c.run("down", c.name); err != nil {
		t.Errorf("down: %v, %s", err, out)
	}
	c.restored(before, "")
	out, err = c.run(append(c.upArguments(), "--background", "--mtu", "100")...)
	if err == nil || !strings.Contains(out, "100 is no MTU of a tunnel") {
		t.Errorf("a start that fails: %v, %s", err, out)
	}
}
