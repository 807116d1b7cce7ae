package tunnel

import (
	"bytes"
	"context"
	"crypto/ecdh"
	crand "crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/tun/netstack"

	"heddle/internal/nstest"
	"heddle/lab/labtest"
	"heddle/split/backend/backendtest"
)

// The world of these tests is that of package backendtest, with ways p1 and p2 as paths. The server is an unmodified
// wireguard-go with a web server behind it.

const serverAddress = "198.51.100.1"

func TestMain(m *testing.M) { labtest.Main(m) }

// client is the machine under test: the test's own thread is in its namespace.
type client struct {
	t                               *testing.T
	here, router                    nstest.Namespace
	binary, dir, conf, name, resolv string
}

const oldResolver = "nameserver 192.0.2.53\n"

// newClient lays the world. change, which may be left out, gets the server.
func newClient(t *testing.T, change ...func(*device.Device)) *client {
	t.Helper()
	w := backendtest.New(t)
	w.Client.Enter(t)
	clientKey, serverKey := newKey(t), newKey(t)
	w.Server.Do(t, func() error { return startServer(t, serverKey, clientKey.PublicKey(), change...) })
	var id [3]byte
	_, _ = crand.Read(id[:])
	// A directory of its own, short enough for a socket's path.
	dir, err := os.MkdirTemp("", "hw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &client{t: t, here: w.Client, router: w.Router, binary: labtest.Heddle, dir: dir, name: "hw" + hex.EncodeToString(id[:]), resolv: filepath.Join(dir, "resolv.conf")}
	c.conf = filepath.Join(dir, c.name+".conf")
	c.write(c.conf, fmt.Sprintf(`[Interface]
PrivateKey = %s
Address = 10.99.0.2/32
DNS = 10.99.0.1
PostUp = echo up %%i >> %[2]s/hooks
PreDown = echo predown %%i >> %[2]s/hooks
PostDown = echo postdown %%i >> %[2]s/hooks
[Peer]
PublicKey = %[3]s
AllowedIPs = 0.0.0.0/0, ::/0
Endpoint = %[4]s:51820
`, encode(clientKey.Bytes()), dir, encode(serverKey.PublicKey().Bytes()), serverAddress))
	c.write(c.resolv, oldResolver)
	return c
}

func newKey(t *testing.T) *ecdh.PrivateKey {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func encode(key []byte) string { return base64.StdEncoding.EncodeToString(key) }

func (c *client) write(file, text string) {
	c.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// startServer runs wireguard-go in the present namespace: its sockets are made by this thread.
func startServer(t *testing.T, own *ecdh.PrivateKey, peer *ecdh.PublicKey, change ...func(*device.Device)) error {
	inside := netip.MustParseAddr("10.99.0.1")
	behind, stack, err := netstack.CreateNetTUN([]netip.Addr{inside}, nil, 1420)
	if err != nil {
		return err
	}
	dev := device.NewDevice(quiet{behind}, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	t.Cleanup(dev.Close)
	for _, c := range change {
		c(dev)
	}
	err = dev.IpcSet(fmt.Sprintf("private_key=%x\nlisten_port=51820\npublic_key=%x\nallowed_ip=10.99.0.2/32\nallowed_ip=10.98.0.2/32\n", own.Bytes(), peer.Bytes()))
	if err == nil {
		err = dev.Up()
	}
	if err != nil {
		return err
	}
	listener, err := stack.ListenTCPAddrPort(netip.AddrPortFrom(inside, 80))
	if err != nil {
		return err
	}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "inside") })}
	go func() { _ = web.Serve(listener) }()
	t.Cleanup(func() { web.Close() })
	return nil
}

// quiet keeps the event from wireguard-go that would have it open its sockets on another thread, in another namespace.
type quiet struct{ tun.Device }

func (quiet) Events() <-chan tun.Event { return nil }

// command runs heddle on the client, with a resolv.conf of the test's own in place of the machine's.
func (c *client) command(args ...string) *exec.Cmd {
	const script = `mount --bind "$1" /etc/resolv.conf && shift && exec "$@"`
	all := append([]string{"--mount", "sh", "-c", script, "sh", c.resolv, c.binary}, args...)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	c.t.Cleanup(cancel) // also ends what a failed test left in the foreground
	cmd := exec.CommandContext(ctx, "unshare", all...)
	// No resolvconf and no resolvectl, whatever this machine has.
	bin := filepath.Join(c.dir, "bin")
	cmd.Env = append(os.Environ(), "HEDDLE_RUN_DIR="+filepath.Join(c.dir, "run"), "SSH_CONNECTION=", "PATH="+bin)
	if _, err := os.Stat(bin); err != nil {
		c.linkPrograms(bin)
	}
	return cmd
}

func (c *client) linkPrograms(bin string) {
	c.t.Helper()
	if err := os.Mkdir(bin, 0o700); err != nil {
		c.t.Fatal(err)
	}
	for _, program := range []string{"sh", "bash", "mount", "unshare"} {
		file, err := exec.LookPath(program)
		if err == nil {
			err = os.Symlink(file, filepath.Join(bin, program))
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *client) run(args ...string) (string, error) {
	out, err := c.command(args...).CombinedOutput()
	return string(out), err
}

func (c *client) upArguments() []string {
	return []string{"up", c.conf, "--via", "a=if:p1", "--via", "b=if:p2"}
}

// running is a heddle in the foreground. exec keeps the process id, so it can be killed.
type running struct {
	cmd  *exec.Cmd
	out  *lines
	done chan error
}

// lines gathers output and tells when a text has come.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	want string
	seen chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	had := strings.Contains(l.text.String(), l.want)
	l.text.Write(p)
	if !had && strings.Contains(l.text.String(), l.want) {
		close(l.seen)
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start runs `heddle up` until it says want.
func (c *client) start(want string, args ...string) *running {
	c.t.Helper()
	r := &running{cmd: c.command(append(c.upArguments(), args...)...), out: &lines{want: want, seen: make(chan struct{})}, done: make(chan error, 1)}
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	// The thread that starts it lives until the test ends, so this kills it with the test only.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	if err := r.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	select {
	case <-r.out.seen:
	case err := <-r.done:
		c.t.Fatalf("heddle up ended before it said %q: %v\n%s", want, err, r.out)
	case <-time.After(2 * time.Minute):
		_ = r.cmd.Process.Kill()
		c.t.Fatalf("heddle up does not say %q:\n%s", want, r.out)
	}
	return r
}

func (r *running) signal(t *testing.T, s os.Signal) error {
	t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.done:
		return err
	case <-time.After(2 * time.Minute):
		_ = r.cmd.Process.Kill()
		t.Fatalf("heddle up does not end:\n%s", r.out)
		return nil
	}
}

func (c *client) text(file string) string {
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	return string(data)
}

// fetch gets the page behind the server with curl.
func (c *client) fetch(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 70*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "curl", append([]string{"-sS", "--max-time", "60", "http://10.99.0.1/"}, args...)...).CombinedOutput()
	return string(out), err
}

// leaks reports whether a packet of another program can leave by an access network.
func (c *client) leaks() bool {
	c.t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "p1") }), err)
	}}
	conn, err := dialer.Dial("udp", serverAddress+":53")
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	_, err = conn.Write([]byte("leak"))
	return err == nil
}
