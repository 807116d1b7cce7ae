package tenant

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"heddle/internal/polltest"
)

// freePort returns a port of the loopback that is free now.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// start lets a program run until the test ends, and returns what it prints. Without the program it skips the test.
func start(t testing.TB, hint, name string, args ...string) (out *bufio.Reader) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip("typed skip:", err, hint)
	}
	cmd := exec.Command(name, args...)
	cmd.WaitDelay = 10 * time.Second
	var talk bytes.Buffer
	cmd.Stderr = &talk
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // nginx then ends its workers
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %s", name, talk.String())
		}
	})
	return bufio.NewReader(pipe)
}

// node starts the application in testdata/app.mjs, and returns its URL.
func node(t testing.TB) string {
	t.Helper()
	out := start(t, "apt-get install nodejs", "node", "testdata/app.mjs")
	port, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return "http://127.0.0.1:" + strings.TrimSpace(port)
}

// listens awaits that something listens on a port of the loopback.
func listens(t testing.TB, port string) {
	t.Helper()
	polltest.Await(t, "something listens on "+port, func() bool {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

const filesConfig = `daemon off;
worker_processes 1;
pid %[1]s/nginx.pid;
events { worker_connections 64; }
http {
	include /etc/nginx/mime.types;
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	%[2]s
}
`

// nginx starts it with some servers in its configuration.
func nginx(t testing.TB, servers string) {
	t.Helper()
	work := t.TempDir()
	config := fmt.Sprintf(filesConfig, work, servers)
	if os.Getuid() == 0 { // the worker reads files of root
		config = "user root;\n" + config
	}
	file := filepath.Join(work, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, "apt-get install nginx", "/usr/sbin/nginx", "-e", "stderr", "-c", file)
}

// serveFiles serves a directory by nginx, and returns its URL.
func serveFiles(t testing.TB, root string) string {
	t.Helper()
	port := freePort(t)
	nginx(t, fmt.Sprintf("server { listen 127.0.0.1:%s; root %s; }", port, root))
	listens(t, port)
	return "http://127.0.0.1:" + port
}
