package peer

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"heddle/internal/netutil"
	"heddle/lab"
	"heddle/path"
)

// Relay relays TLS connections by the server name in the ClientHello, and tells the target who the client is by the PROXY protocol.
type Relay struct {
	Name   string // the server name
	Listen uint16 // the relay's port
	To     netip.AddrPort
	Work   string // an existing directory, for its configuration
}

// haproxyConfig is what HAProxy's manual gives for this ("req.ssl_sni" in "Fetching samples from buffer contents").
const haproxyConfig = `global
	maxconn 4096
	log stderr format raw local0 warning
defaults
	mode tcp
	timeout connect 5s
	timeout client 1m
	timeout server 1m
frontend names
	bind :%[1]d
	tcp-request inspect-delay 5s
	tcp-request content accept if { req.ssl_hello_type 1 }
	use_backend site if { req.ssl_sni -i %[2]s }
backend site
	server sidecar %[3]s send-proxy-v2
`

// HAProxySupported returns nil, or an error that wraps [ErrMissing].
func HAProxySupported() error {
	if _, err := haproxy(); err != nil {
		return missing("haproxy", "apt-get install haproxy")
	}
	return nil
}

// haproxy finds the program, which Debian installs only in root's PATH.
func haproxy() (string, error) {
	if file, err := exec.LookPath("haproxy"); err == nil {
		return file, nil
	}
	return exec.LookPath("/usr/sbin/haproxy")
}

// HAProxy starts the unmodified HAProxy on a host as a relay.
func (r Relay) HAProxy(ctx context.Context, host *lab.Host) (*Process, error) {
	program, err := haproxy()
	if err != nil {
		return nil, HAProxySupported()
	}
	file := filepath.Join(r.Work, "haproxy.cfg")
	if err := os.WriteFile(file, fmt.Appendf(nil, haproxyConfig, r.Listen, r.Name, r.To), 0o600); err != nil {
		return nil, err
	}
	return r.start(ctx, host, program, "-db", "-f", file)
}

// haproxyLocalConfig takes connections at an address or a socket, as the manual has it ("accept-proxy" in "Bind options").
const haproxyLocalConfig = `global
	log stderr format raw local0 warning
defaults
	mode tcp
	timeout connect 5s
	timeout client 1m
	timeout server 1m
listen site
	bind %[1]s
	server sidecar %[2]s send-proxy-v2
`

// HAProxyAt starts the unmodified HAProxy on a host. It takes connections at an address, which may be a socket, unix:FILE, and passes them to another
// address by the PROXY protocol. If it is told clients it learns of them by that protocol too. Its configuration goes to work, an existing directory.
func HAProxyAt(ctx context.Context, host *lab.Host, work, listen string, told bool, to netip.AddrPort) (*Process, error) {
	program, err := haproxy()
	if err != nil {
		return nil, HAProxySupported()
	}
	network, at := netutil.Network(listen)
	bind := at
	switch {
	case network == "unix":
		bind = "unix@" + at + " mode 600"
	case strings.HasPrefix(at, "[::]"):
		bind += " v4v6"
	}
	if told {
		bind += " accept-proxy"
	}
	file := filepath.Join(work, "haproxy.cfg")
	if err := os.WriteFile(file, fmt.Appendf(nil, haproxyLocalConfig, bind, to), 0o600); err != nil {
		return nil, err
	}
	p, err := Start(ctx, host, program, "-db", "-f", file)
	if err != nil {
		return nil, err
	}
	return p.OrStop(p.Await(ctx, func() error {
		return host.Do(func() error {
			c, err := net.Dial(network, strings.Replace(at, "[::]", "127.0.0.1", 1)) // one address: Go dials two outside of the host
			if err == nil {
				c.Close()
			}
			return err
		})
	}))
}

// nginxRelayConfig is that of ngx_stream_ssl_preread_module.
const nginxRelayConfig = `daemon off;
load_module %[1]s;
worker_processes auto;
pid %[2]s/relay.pid;
error_log stderr warn;
events { worker_connections 4096; }
stream {
	map $ssl_preread_server_name $site { %[4]s %[5]s; }
	server {
		listen %[3]d;
		ssl_preread on;
		proxy_protocol on;
		proxy_pass $site;
	}
}
`

// nginxStream is where Debian and Ubuntu install nginx's module.
const nginxStream = "/usr/lib/nginx/modules/ngx_stream_module.so"

// NginxRelaySupported returns nil, or an error that wraps [ErrMissing].
func NginxRelaySupported() error {
	if _, err := nginx(); err != nil {
		return missing("nginx", "apt-get install nginx")
	}
	if _, err := os.Stat(nginxStream); err != nil {
		return &path.Error{What: nginxStream, Hint: "apt-get install libnginx-mod-stream", Err: ErrMissing}
	}
	return nil
}

// Nginx starts the unmodified nginx on a host as a relay.
func (r Relay) Nginx(ctx context.Context, host *lab.Host) (*Process, error) {
	if err := NginxRelaySupported(); err != nil {
		return nil, err
	}
	program, err := nginx()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(r.Work, "nginx-relay.conf")
	config := fmt.Sprintf(nginxRelayConfig, nginxStream, r.Work, r.Listen, r.Name, r.To)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	return r.start(ctx, host, program, "-e", "stderr", "-c", file)
}

// start starts the program. It refuses a port on which another program listens, since a bench would measure that one.
func (r Relay) start(ctx context.Context, host *lab.Host, program string, args ...string) (*Process, error) {
	if host.Do(func() error { return connects(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), r.Listen)) }) == nil {
		return nil, fmt.Errorf("%s: another program listens on port %d of host %s", filepath.Base(program), r.Listen, host.Name())
	}
	p, err := Start(ctx, host, program, args...)
	if err != nil {
		return nil, err
	}
	return listening(ctx, p, host, r.Listen)
}
