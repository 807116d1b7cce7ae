package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"heddle/lab"
)

// Script is an ES module that drives Chromium with playwright-core. It reads {executable, args, order} as JSON from its standard input.
type Script struct {
	Text  string
	Args  []string // of Chromium
	Order any
	// Home keeps what Chromium leaves: certificates, profile and crash reports. If it is empty, nothing is kept.
	Home string
	// Policies are what an administrator sets for Chromium on this machine. They hold for this run only.
	Policies map[string]any
}

// withPolicies runs a program that sees a directory as /etc/chromium. The namespace of mounts is that of the program.
const withPolicies = `mount --bind "$0" /etc/chromium && exec "$@"`

// Run runs the script in a host, and returns what it prints.
func (s Script) Run(ctx context.Context, host *lab.Host) ([]byte, error) {
	if err := Supported(); err != nil {
		return nil, err
	}
	dir, err := install(ctx)
	if err != nil {
		return nil, err
	}
	executable, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	stdin, err := json.Marshal(map[string]any{"executable": executable, "args": s.Args, "order": s.Order})
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "heddle-browser-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	home := s.Home
	if home == "" {
		home = temp
	}
	argv := []string{"node", "--input-type=module", "--eval", s.Text}
	if s.Policies != nil {
		if argv, err = s.governed(temp, argv); err != nil {
			return nil, err
		}
	}
	cmd := host.Command(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir // where Node.js looks for playwright-core
	// Playwright would have Chromium report all that a Service Worker fetches, which takes the worker longer than the fetches do.
	cmd.Env = append(os.Environ(), "PLAYWRIGHT_DISABLE_SERVICE_WORKER_NETWORK=1", "HOME="+home, "TMPDIR="+temp, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	cmd.Stdin = bytes.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // playwright then ends Chromium
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("chromium on %s: %w\n%s", host.Name(), err, &stderr)
	}
	return stdout.Bytes(), nil
}

// governed returns a command that runs another one under the policies.
func (s Script) governed(dir string, argv []string) ([]string, error) {
	text, err := json.Marshal(s.Policies)
	if err != nil {
		return nil, err
	}
	managed := filepath.Join(dir, "etc", "policies", "managed")
	if err := os.MkdirAll(managed, 0o755); err != nil {
		return nil, err
	}
	return append([]string{"sh", "-c", withPolicies, filepath.Join(dir, "etc")}, argv...), os.WriteFile(filepath.Join(managed, "heddle.json"), text, 0o644)
}
