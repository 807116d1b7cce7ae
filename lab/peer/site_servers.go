package peer

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"heddle/lab"
	"heddle/path"
)

// siteServers start web servers of several makers on port 80 of a host. They serve a directory, with the settings that they begin with. Their own files
// go to work, an existing directory.
var siteServers = map[string]func(ctx context.Context, host *lab.Host, root, work string) (*Process, error){
	"nginx": func(ctx context.Context, host *lab.Host, root, work string) (*Process, error) {
		return StartNginx(ctx, host, work, fmt.Sprintf("server { listen 80; root %s; }", root))
	},
	"apache": startApache,
	"node": func(ctx context.Context, host *lab.Host, root, _ string) (*Process, error) {
		return Start(ctx, host, "node", "-e", nodeServer, root)
	},
	"python": func(ctx context.Context, host *lab.Host, root, _ string) (*Process, error) {
		return Start(ctx, host, "/usr/bin/python3", "-m", "http.server", "80", "--directory", root)
	},
	"php": func(ctx context.Context, host *lab.Host, root, _ string) (*Process, error) {
		return Start(ctx, host, "php", "-S", "0.0.0.0:80", "-t", root)
	},
}

// nodeServer answers each request with the index of the directory that is its argument.
const nodeServer = `const index = require("fs").readFileSync(process.argv[1] + "/index.html");
require("http").createServer((q, r) => { r.setHeader("Content-Type", "text/html"); r.end(index); }).listen(80);`

const apacheConfig = `ServerRoot %[1]s
ServerName localhost
PidFile %[1]s/apache.pid
DefaultRuntimeDir %[1]s
User www-data
Group www-data
ErrorLog %[1]s/error.log
LoadModule mpm_event_module %[3]s/mod_mpm_event.so
LoadModule authz_core_module %[3]s/mod_authz_core.so
LoadModule mime_module %[3]s/mod_mime.so
LoadModule dir_module %[3]s/mod_dir.so
TypesConfig /etc/mime.types
Listen 0.0.0.0:80
DocumentRoot %[2]s
<Directory %[2]s>
	Require all granted
</Directory>
`

// Where Debian installs Apache.
const (
	apache        = "/usr/sbin/apache2"
	apacheModules = "/usr/lib/apache2/modules"
)

func startApache(ctx context.Context, host *lab.Host, root, work string) (*Process, error) {
	if _, err := os.Stat(apache); err != nil {
		return nil, missing(apache, "apt-get install apache2-bin")
	}
	file := filepath.Join(work, "apache.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, apacheConfig, work, root, apacheModules), 0o600); err != nil {
		return nil, err
	}
	return Start(ctx, host, apache, "-D", "FOREGROUND", "-f", file)
}

// GoServer is the name of the server of Go's net/http for [StartSite].
const GoServer = "go"

// StartSite starts a web server on port 80 of a host until ctx ends: "nginx", "apache", "node", "python", "php", or [GoServer], which is in this process.
// It serves a directory, at least its index.html. Its own files go to work, an existing directory.
func StartSite(ctx context.Context, server string, host *lab.Host, root, work string) error {
	if server == GoServer {
		return serveGo(ctx, host, root)
	}
	start, ok := siteServers[server]
	if !ok {
		return &path.Error{What: "web server " + server, Why: "there is none such"}
	}
	p, err := start(ctx, host, root, work)
	if err != nil {
		return err
	}
	_, err = listening(ctx, p, host, 80)
	return err
}

func serveGo(ctx context.Context, host *lab.Host, root string) error {
	var l net.Listener
	err := host.Do(func() (err error) {
		l, err = net.Listen("tcp", ":80")
		return err
	})
	if err != nil {
		return fmt.Errorf("web server on %s: %w", host.Name(), err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(root)), ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(l)
	context.AfterFunc(ctx, func() { server.Close() })
	return nil
}
