package peer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"heddle/lab"
)

// nginx finds the program, which Debian installs only in root's PATH.
func nginx() (string, error) {
	if file, err := exec.LookPath("nginx"); err == nil {
		return file, nil
	}
	return exec.LookPath("/usr/sbin/nginx")
}

const nginxConfig = `daemon off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr warn;
events { worker_connections 512; }
http {
	include /etc/nginx/mime.types;
	default_type application/octet-stream;
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	%[2]s
}
`

// StartNginx starts nginx with some servers in its configuration on a host, or on this machine if host is nil. Its files go to work, an existing directory.
func StartNginx(ctx context.Context, host *lab.Host, work, servers string) (*Process, error) {
	program, err := nginx()
	if err != nil {
		return nil, missing("nginx", "apt-get install nginx")
	}
	config := fmt.Sprintf(nginxConfig, work, servers)
	if os.Getuid() == 0 {
		config = "user root;\n" + config // the worker uses files and sockets of root
	}
	file := filepath.Join(work, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	args := []string{"-e", "stderr", "-c", file}
	if host == nil {
		return StartHere(ctx, program, args...)
	}
	return Start(ctx, host, program, args...)
}
