// Package clitest helps to test the command line: commands in this process, devices with their own keys, and golden
// files. Do not use it outside tests.
package clitest

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/cli"
	"heddle/identity"
	"heddle/internal/tcptest"
)

// Program is a heddle made of some commands, given by their constructors.
type Program []func() *cobra.Command

// Run runs a command line and returns the exit code.
func (p Program) Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "heddle", SilenceErrors: true, SilenceUsage: true}
	for _, command := range p {
		root.AddCommand(command())
	}
	cli.Finish(root)
	return cli.Run(ctx, root, args, stdin, stdout, stderr)
}

// Quietly runs a command to its end.
func (p Program) Quietly(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var said Spoken
	code := p.Run(t.Context(), args, strings.NewReader(""), &said, &said)
	return code, said.String()
}

// Spoken is the output of a command so far.
type Spoken struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *Spoken) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *Spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Device is a home directory with a key.
type Device struct {
	t    *testing.T
	p    Program
	File string
	Key  string
}

// NewDevice makes a device.
func (p Program) NewDevice(t *testing.T) Device {
	t.Helper()
	return p.Device(t, filepath.Join(t.TempDir(), "identity.pem"))
}

// Device returns the device with the key in a file, which is created if needed.
func (p Program) Device(t *testing.T, file string) Device {
	t.Helper()
	id, _, err := identity.LoadOrCreate(file)
	if err != nil {
		t.Fatal(err)
	}
	return Device{t, p, file, id.Key().String()}
}

// Start runs a command as this device until the test ends, and returns once its output matches a pattern.
func (d Device) Start(until string, args ...string) (said *Spoken, match []string) {
	d.t.Helper()
	return d.p.Start(d.t, until, append(args, "--identity", d.File)...)
}

// Start runs a command until the test ends, and returns once its output matches a pattern.
func (p Program) Start(t *testing.T, until string, args ...string) (said *Spoken, match []string) {
	t.Helper()
	said = &Spoken{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- p.Run(ctx, args, strings.NewReader(""), said, said) }()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != cli.ExitOK {
			t.Errorf("%v: exit code %d\n%s", args, code, said)
		}
	})
	pattern := regexp.MustCompile(until)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if match = pattern.FindStringSubmatch(said.String()); match != nil {
			return said, match
		}
		select {
		case code := <-done:
			done <- code
			t.Fatalf("%v ended with %d:\n%s", args, code, said)
		default:
		}
	}
	t.Fatalf("%v does not say %q:\n%s", args, until, said)
	return nil, nil
}

// ShortRunDir sets a run directory with a short path, as sockets need.
func ShortRunDir(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "heddle")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("HEDDLE_RUN_DIR", dir)
}

func EchoServer(t *testing.T) string {
	t.Helper()
	return tcptest.Serve(t, tcptest.Echo).String()
}

// Echoed sends text to an address and reads until the other side closes.
func Echoed(t *testing.T, at, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, text)
	_ = c.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("after %d bytes: %v", len(got), err)
	}
	return string(got)
}

// TwoPaths are two paths for tests without namespaces, both over loopback.
var TwoPaths = []string{"--via", "a=src:127.0.0.1", "--via", "b=if:lo"}
