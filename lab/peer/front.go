package peer

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"heddle/lab"
)

// Front is nginx in front of another web server: it has the TLS, and passes on what visitors ask for.
type Front struct {
	Listen           netip.AddrPort
	To               string // such as http://127.0.0.1:8081 or http://unix:/run/site.sock:
	Certificate, Key string // PEM files
	Work             string // an existing directory, for its configuration
	More             string // servers of its own
	// Plain leaves out all that nginx does not need.
	Plain bool
}

const frontConfig = `daemon off;
worker_processes 2;
pid %[1]s/front.pid;
error_log stderr crit;
events { worker_connections 512; }
http {
	include /etc/nginx/mime.types;
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s ssl http2;
		ssl_protocols TLSv1.2 TLSv1.3;
		ssl_certificate %[3]s;
		ssl_certificate_key %[4]s;
		location / {
			proxy_pass %[5]s;%[6]s
		}
	}
	%[7]s
}
`

// frontUsual is what the guide tells operators to write.
const frontUsual = `
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header Host $host;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
			proxy_set_header X-Forwarded-Proto $scheme;
			proxy_buffering off;`

// Start starts it on a host, or on this machine if host is nil, and waits until it listens.
func (f Front) Start(ctx context.Context, host *lab.Host) (*Process, error) {
	program, err := nginx()
	if err != nil {
		return nil, missing("nginx", "apt-get install nginx")
	}
	more := frontUsual
	if f.Plain {
		more = ""
	}
	config := fmt.Sprintf(frontConfig, f.Work, f.Listen, f.Certificate, f.Key, f.To, more, f.More)
	if os.Getuid() == 0 {
		config = "user root;\n" + config // the workers use sockets of root
	}
	file := filepath.Join(f.Work, "front.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	args := []string{"-e", "stderr", "-c", file}
	if host == nil {
		p, err := StartHere(ctx, program, args...)
		if err != nil {
			return nil, err
		}
		return p.started(p.Await(ctx, func() error { return connects(f.Listen) }))
	}
	p, err := Start(ctx, host, program, args...)
	if err != nil {
		return nil, err
	}
	return p.started(p.Await(ctx, func() error { return host.Do(func() error { return connects(f.Listen) }) }))
}
