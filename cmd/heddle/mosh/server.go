package mosh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"heddle/path"
)

// Server says where and how mosh-server is started.
type Server struct {
	Host      string // [USER@]HOST, in ssh's syntax
	SSHPort   int    `flag:"ssh-port" help:"the port of sshd; 0 for the one in ssh's configuration"`
	SSHConfig string `flag:"ssh-config" help:"a <file> that ssh reads in place of your own configuration"`
	// Proxy holds the words of ssh's proxy command, which host and port follow. Once connected, it must print "MOSH IP"
	// and the address to stderr.
	Proxy   []string
	Program string   `flag:"server" help:"the <command> that starts mosh-server on the server"`
	Port    string   `flag:"port" help:"the server's UDP <PORT> or LOW:HIGH; by default mosh-server chooses"`
	Colors  int      // of the terminal
	Locale  []string // NAME=VALUE, which mosh-server needs if its own locale is not UTF-8
	Command []string // runs instead of a login shell
}

// Session is a mosh-server that waits for its client.
type Session struct {
	Addr netip.AddrPort // UDP address that it listens on
	Key  Key
}

// Key is the session's AES-128-OCB key in mosh-client's format. It prints as a placeholder.
type Key string

// String hides the key.
func (k Key) String() string { return "(key)" }

// GoString hides the key.
func (k Key) GoString() string { return "(key)" }

// SSH returns the arguments of ssh.
func (s Server) SSH() []string {
	// Reuse no ssh connection, which took another path, and no proxy but ours (ssh_config(5), ProxyCommand).
	args := []string{"-n", "-tt", "-S", "none", "-o", "ProxyCommand=" + strings.ReplaceAll(Quote(s.Proxy), "%", "%%") + " '%h' '%p'"}
	if s.SSHConfig != "" {
		args = append(args, "-F", s.SSHConfig)
	}
	if s.SSHPort != 0 {
		args = append(args, "-p", strconv.Itoa(s.SSHPort))
	}
	server := []string{"new", "-c", strconv.Itoa(s.Colors), "-s"}
	if s.Port != "" {
		server = append(server, "-p", s.Port)
	}
	for _, l := range s.Locale {
		server = append(server, "-l", l)
	}
	if len(s.Command) > 0 {
		server = append(append(server, "--"), s.Command...)
	}
	return append(args, s.Host, "--", cmp.Or(s.Program, "mosh-server")+" "+Quote(server))
}

// plain matches words that no shell changes.
var plain = regexp.MustCompile(`^[A-Za-z0-9_/:.,@+-][A-Za-z0-9_/:.,@+=-]*$`)

// Quote joins words to a POSIX shell line that keeps each word unchanged.
func Quote(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; plain.MatchString(w) {
			continue
		}
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// sshLinger is how long ssh may take to end after mosh-server has said where it listens.
const sshLinger = 5 * time.Second

// Start starts mosh-server and waits until it listens. Other output of ssh and the server goes to talk, line by line;
// ssh asks for passwords on the terminal itself. It fails with a [path.Error].
func (s Server) Start(ctx context.Context, talk io.Writer) (Session, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var talking sync.Mutex
	a := &answer{found: make(chan struct{})}
	out := &lines{take: a.server, rest: talk, mu: &talking}
	stderr := &lines{take: a.proxy, rest: talk, mu: &talking}
	cmd := exec.CommandContext(ctx, "ssh", s.SSH()...)
	// The proxy's command line is quoted for this shell.
	cmd.Env = append(os.Environ(), "SHELL=/bin/sh")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, stderr, time.Second
	if err := cmd.Start(); err != nil {
		return Session{}, &path.Error{What: "ssh", Err: err, Hint: "apt-get install openssh-client"}
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var err error
	select {
	case err = <-done:
	case <-a.found:
		select {
		case <-done:
		case <-time.After(sshLinger):
			cancel()
			<-done
		}
	}
	out.flush()
	stderr.flush()
	if cause := context.Cause(ctx); cause != nil && a.key == "" {
		return Session{}, cause
	}
	return a.session(s.Host, err)
}

// session returns the result of the output; err is how ssh ended.
func (a *answer) session(host string, err error) (Session, error) {
	fail := func(why, hint string) (Session, error) {
		return Session{}, &path.Error{What: "mosh-server on " + host, Why: why, Hint: hint}
	}
	status := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status = exit.ExitCode()
	}
	switch {
	case a.err != nil:
		return fail(a.err.Error(), "does a banner or a start-up file on the server print such lines?")
	case a.key != "" && !a.addr.IsValid():
		return fail("ssh did not connect through heddle, so its address is not known", "do not disable ProxyCommand in ssh's configuration")
	case a.key != "":
		return Session{Addr: netip.AddrPortFrom(a.addr, a.port), Key: a.key}, nil
	case status == 127: // from the shell (POSIX, section 2.8.2)
		return fail("there is no such program", "install mosh on the server, such as with apt-get install mosh, or say with --server where it is")
	case status == 255: // from ssh itself (ssh(1), EXIT STATUS)
		return fail("ssh failed; what it said is above", "try `ssh "+host+"`; another path can carry it with --ssh-via NAME")
	default:
		return fail(fmt.Sprintf("no MOSH CONNECT line came, ssh ended with %d; what it said is above", status),
			"is mosh installed there, and is its locale UTF-8? try `ssh "+host+" mosh-server`")
	}
}
