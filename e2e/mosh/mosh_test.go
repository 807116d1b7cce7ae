package mosh

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/observe"
)

const patience = time.Minute

// contains is a screen with all of these lines, in this order and next to each other.
func contains(want ...string) func([]string) bool {
	return func(screen []string) bool {
		for i := range len(screen) - len(want) + 1 {
			if slices.Equal(screen[i:i+len(want)], want) {
				return true
			}
		}
		return false
	}
}

// begins is a screen with a line that begins so.
func begins(want string) func([]string) bool {
	return func(screen []string) bool {
		return slices.ContainsFunc(screen, func(line string) bool { return strings.HasPrefix(line, want) })
	}
}

// do types a line and waits for what it prints.
func do(t *testing.T, terminal *peer.Terminal, line string, wanted func([]string) bool) {
	t.Helper()
	if err := terminal.Type(line); err != nil {
		t.Fatal(err)
	}
	if err := terminal.Await(t.Context(), patience, wanted); err != nil {
		t.Fatal(err)
	}
}

// runs reports whether a process does more than wait for somebody to ask how it ended, which in a container may be
// nobody (proc_pid_stat(5)).
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " Z")
}

// ended waits for the end of heddle, and of what ran on the server, if anything. It gives the exit status.
func ended(t *testing.T, terminal *peer.Terminal, pid int) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	status, err := terminal.Wait(ctx)
	if err != nil {
		t.Fatalf("heddle mosh does not end: %v\n%s", err, terminal.Log())
	}
	for pid != 0 && runs(pid) {
		if ctx.Err() != nil {
			t.Fatalf("process %d on the server outlives the session", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return status
}

// shell starts a session with a shell, and gives the shell's process on the server.
func shell(t *testing.T, w *world) (terminal *peer.Terminal, pid int) {
	t.Helper()
	terminal, err := w.server.Split(t.Context(), w.Host("client"), labtest.Heddle, append(over("100ms"), "--ssh-via", "lte"), bash...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(terminal.Stop)
	do(t, terminal, "echo shell=$$\r", func(screen []string) bool {
		return slices.ContainsFunc(screen, func(line string) bool {
			n, _ := fmt.Sscanf(line, "shell=%d", &pid)
			return n == 1
		})
	})
	return terminal, pid
}

func TestServerEndsWithTheSession(t *testing.T) {
	w := newWorld(t)
	client, stop := w.Host("client"), w.watch()
	w.server.Name = lab.ServerAddr6.String()
	const name = "mosh-2001-db8-2-1"

	terminal, pid := shell(t, w)
	out, err := client.Command(t.Context(), labtest.Heddle, "status").CombinedOutput()
	if text := string(out); err != nil || !strings.Contains(text, name) || !strings.Contains(text, "office") {
		t.Errorf("heddle status: %v\n%s", err, text)
	}
	if out, err := client.Command(t.Context(), labtest.Heddle, "down", name).CombinedOutput(); err != nil {
		t.Fatalf("heddle down: %v\n%s", err, out)
	}
	if status := ended(t, terminal, pid); status != 0 {
		t.Errorf("after heddle down: exit status %d\n%s", status, terminal.Log())
	}

	terminal, pid = shell(t, w)
	if err := terminal.Hang(); err != nil {
		t.Fatal(err)
	}
	ended(t, terminal, pid) // with whatever mosh-client makes of a terminal that is gone

	for way, c := range stop() {
		ssh := slices.ContainsFunc(c.Flows, func(f observe.Flow) bool {
			return f.Transport == "tcp" && f.Server == netip.AddrPortFrom(lab.ServerAddr6, 22)
		})
		if ssh != (way == "lte") {
			packets, _ := exec.CommandContext(t.Context(), "tcpdump", "-nr", labtest.File(w.seen, way), "tcp").CombinedOutput()
			t.Errorf("%s carried ssh: %v\n%s", way, ssh, packets)
		}
	}
}

func TestServerWithoutMosh(t *testing.T) {
	w := newWorld(t)
	_, err := w.server.Split(t.Context(), w.Host("client"), labtest.Heddle, append(over("100ms"), "--server", "/nowhere/mosh-server"))
	for _, want := range []string{"/nowhere/mosh-server: No such file", "heddle: mosh-server on server.example: there is no such program", "hint: install mosh on the server"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without mosh-server: no %q in: %v", want, err)
		}
	}
}

// mosh-client knows the relay only, so it is heddle that must say that the server's port is closed.
func TestUDPThatIsBlocked(t *testing.T) {
	w := newWorld(t)
	claims := "echo MOSH CONNECT 60009 AAAAAAAAAAAAAAAAAAAAAA; true"
	terminal, err := w.server.Split(t.Context(), w.Host("client"), labtest.Heddle, append(over("100ms"), "--server", claims))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(terminal.Stop)
	const quit = "\x1e." // as mosh-client says on the screen
	do(t, terminal, "", begins("mosh: Nothing received from server"))
	do(t, terminal, quit, begins("heddle: mosh: nothing came back from 192.0.2.1:60009 by any path"))
	if status := ended(t, terminal, 0); status != 1 {
		t.Errorf("exit status %d", status)
	}
}

func TestSessionStaysCorrectWhilePathsSwitch(t *testing.T) {
	w := newWorld(t)
	if err := w.Link("lte").Reshape(func(s *lab.Shape) { s.Loss = 0.05 }); err != nil {
		t.Fatal(err)
	}
	stop := w.watch()
	terminal, err := w.server.Split(t.Context(), w.Host("client"), labtest.Heddle, append(over("10ms"), "--predict", "never"), bash...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(terminal.Stop)
	do(t, terminal, "", contains("$"))
	do(t, terminal, "printf 'one %s\\n' two\r", contains("one two", "$"))
	do(t, terminal, "ecko\x7f\x7fho héddle ✓\r", contains("héddle ✓", "$"))
	// Each key is shown once it has been to the server and back.
	typed := "$ "
	for _, key := range "#the-quick-brown-fox-jumps-over-the-lazy-dog" {
		typed += string(key)
		do(t, terminal, string(key), contains(typed))
	}
	do(t, terminal, "\r", contains(typed, "$"))
	do(t, terminal, "seq 1 500\r", contains("498", "499", "500", "$"))
	do(t, terminal, "clear; for i in $(seq 200); do printf '\\033[H\\033[2Jframe %03d' $i; sleep 0.01; done; echo\r", contains("frame 200", "$"))
	// A full screen of lines that all differ, in colours that change inside a line.
	var full []string
	for i := 1; i < 24; i++ {
		full = append(full, fmt.Sprintf("%02d %s", i, strings.Repeat(fmt.Sprintf("%02d", 99-i), 38)))
	}
	paint := "clear; for i in $(seq 23); do printf '%02d ' $i; for j in $(seq 38); do printf '\\033[3%dm%02d\\033[m' $((j%8)) $((99-i)); done; echo; done\r"
	do(t, terminal, paint, func(screen []string) bool { return slices.Equal(screen, append(slices.Clone(full), "$")) })
	if err := terminal.Type("exit\r"); err != nil {
		t.Fatal(err)
	}
	if status, err := terminal.Wait(t.Context()); status != 0 || err != nil {
		t.Errorf("heddle mosh ended with %d, %v\n%s", status, err, terminal.Log())
	}
	checkPaths(t, w, stop())
}

// checkPaths looks at what each network saw: a part of the session, from its own address, and ssh on the first alone.
func checkPaths(t *testing.T, w *world, seen map[string]*observe.Capture) {
	t.Helper()
	for i, way := range lab.Ways {
		own := w.Host("client").Addrs()[2*i : 2*i+2]
		c := seen[way]
		up, down, ssh := 0, 0, 0
		for _, p := range c.Packets {
			flow := c.Flows[p.Flow]
			if flow.Server.Addr() != lab.ServerAddr {
				continue // neighbour discovery and the like
			}
			if !slices.Contains(own, flow.Client.Addr()) {
				t.Errorf("%s carried a packet of %s", way, flow.Client.Addr())
			}
			switch {
			case flow.Transport == "tcp":
				ssh++
			case p.Out:
				up++
			default:
				down++
			}
		}
		t.Logf("%s: %d datagrams up, %d down, %d packets of ssh", way, up, down, ssh)
		if up < 10 || down < 10 {
			t.Errorf("%s carried %d datagrams up and %d down, too few for a part of the session", way, up, down)
		}
		if first := i == 0; first != (ssh > 0) {
			t.Errorf("%s carried %d packets of ssh", way, ssh)
		}
	}
}
