package browser

import (
	"context"
	"embed"
	"os/exec"

	"heddle/lab/peer"
	"heddle/path"
)

//go:embed package.json package-lock.json
var driver embed.FS

//go:embed visit.mjs
var visitScript string

// The programs and their Debian packages.
var programs = []struct{ name, pkg string }{{"chromium", "chromium"}, {"node", "nodejs"}, {"npm", "npm"}}

// Supported returns nil, or an error that names the missing program and wraps [peer.ErrMissing].
func Supported() error {
	for _, p := range programs {
		if _, err := exec.LookPath(p.name); err != nil {
			return &path.Error{What: p.name, Hint: "apt-get install " + p.pkg, Err: peer.ErrMissing}
		}
	}
	return nil
}

// install returns the directory of the driver with its npm packages, from the cache or newly made.
func install(ctx context.Context) (string, error) {
	files := peer.Sources(driver, ".")
	return peer.Cached("browser-"+peer.Digest("", files), func(fresh string) error {
		if err := peer.Write(fresh, files); err != nil {
			return err
		}
		return peer.Tool(ctx, fresh, "npm must reach a registry, once", "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	})
}
