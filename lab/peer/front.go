package peer

import (
	"context"
	"fmt"
	"net/netip"

	"heddle/lab"
)

// Front is nginx or Caddy in front of another web server: it has the TLS, and passes on what visitors ask for.
type Front struct {
	Caddy            bool
	Listen           netip.AddrPort
	To               string // such as http://127.0.0.1:8081 or http://unix:/run/site.sock:
	Certificate, Key string // PEM files
	Work             string // an existing directory, for its configuration
	More             string // servers of nginx's own
	// Plain leaves out all that nginx does not need. Caddy's configuration is always plain.
	Plain bool
}

const frontServer = `server {
		listen %[1]s ssl http2;
		ssl_protocols TLSv1.2 TLSv1.3;
		ssl_certificate %[2]s;
		ssl_certificate_key %[3]s;
		location / {
			proxy_pass %[4]s;%[5]s
		}
	}
	%[6]s`

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
	start := f.startNginx
	if f.Caddy {
		start = f.startCaddy
	}
	p, err := start(ctx, host)
	if err != nil {
		return nil, err
	}
	there := func() error { return connects(f.Listen) }
	if host == nil {
		return p.OrStop(p.Await(ctx, there))
	}
	return p.OrStop(p.Await(ctx, func() error { return host.Do(there) }))
}

func (f Front) startNginx(ctx context.Context, host *lab.Host) (*Process, error) {
	more := frontUsual
	if f.Plain {
		more = ""
	}
	return StartNginx(ctx, host, f.Work, fmt.Sprintf(frontServer, f.Listen, f.Certificate, f.Key, f.To, more, f.More))
}
