package mosh

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"heddle/path"
)

// Predictions are the modes of mosh-client's local echo, the default first.
var Predictions = []string{"adaptive", "always", "never", "experimental"}

// localeNames are the variables that mosh sends to the server, in its order.
var localeNames = []string{"LANG", "LANGUAGE", "LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "LC_MONETARY", "LC_MESSAGES",
	"LC_PAPER", "LC_NAME", "LC_ADDRESS", "LC_TELEPHONE", "LC_MEASUREMENT", "LC_IDENTIFICATION", "LC_ALL"}

// Locale returns this process's locale, NAME=VALUE.
func Locale() []string {
	var all []string
	for _, name := range localeNames {
		if value, set := os.LookupEnv(name); set {
			all = append(all, name+"="+value)
		}
	}
	return all
}

// Check looks for mosh-client, ssh and a UTF-8 locale before anything is sent.
func Check(ctx context.Context) error {
	for program, pkg := range map[string]string{"mosh-client": "mosh", "ssh": "openssh-client"} {
		if _, err := exec.LookPath(program); err != nil {
			return &path.Error{What: program, Why: "it is not installed on this machine", Hint: "apt-get install " + pkg}
		}
	}
	// mosh-client asks the C library too, which interprets the variables.
	charmap, err := exec.CommandContext(ctx, "locale", "charmap").Output()
	if name := strings.TrimSpace(string(charmap)); err == nil && name != "UTF-8" {
		return &path.Error{What: "locale", Why: fmt.Sprintf("its characters are %s, and mosh needs UTF-8", name),
			Hint: "LC_ALL=C.UTF-8 heddle mosh ..., or another locale that `locale -a` lists"}
	}
	return nil
}

// Colors is the terminal's number of colours by mosh-client; 0 if unknown.
func Colors(ctx context.Context) int {
	out, err := exec.CommandContext(ctx, "mosh-client", "-c").Output()
	n, parseErr := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || parseErr != nil || n < 0 {
		return 0
	}
	return n
}

// Client is a mosh-client to run.
type Client struct {
	Addr     netip.AddrPort // of the server, or the relay to it
	Key      Key
	Predict  string
	Terminal [3]*os.File // stdin, stdout and stderr; the first two are a terminal
}

// Args returns the command line. The key is in the environment instead, which other users cannot read.
func (c Client) Args() []string {
	return []string{"mosh-client", c.Addr.Addr().String(), strconv.Itoa(int(c.Addr.Port()))}
}

// clientGrace is the time for mosh-client's goodbye to a server that may not answer: it tries for ten seconds.
const clientGrace = 15 * time.Second

// Run runs mosh-client on the terminal and returns its exit status. When ctx ends, mosh-client is asked to end.
func (c Client) Run(ctx context.Context) (status int, err error) {
	args := c.Args()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Terminal[0], c.Terminal[1], c.Terminal[2]
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MOSH_KEY=") }),
		"MOSH_KEY="+string(c.Key), "MOSH_PREDICTION_DISPLAY="+c.Predict)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = clientGrace
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status := exit.ExitCode(); status >= 0 {
			return status, nil
		}
	}
	if ctx.Err() != nil && cmd.ProcessState != nil {
		return 0, nil // it ended on request
	}
	return 0, err
}
