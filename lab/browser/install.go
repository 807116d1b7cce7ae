package browser

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"heddle/lab/peer"
	"heddle/path"
)

//go:embed visit.mjs package.json package-lock.json
var driver embed.FS

// The programs, and the packages of Debian that bring them.
var programs = []struct{ name, pkg string }{{"chromium", "chromium"}, {"node", "nodejs"}, {"npm", "npm"}}

// Supported says which program is missing here, wrapping [peer.ErrMissing], or nil.
func Supported() error {
	for _, p := range programs {
		if _, err := exec.LookPath(p.name); err != nil {
			return &path.Error{What: p.name, Hint: "apt-get install " + p.pkg, Err: peer.ErrMissing}
		}
	}
	return nil
}

// install gives the directory of the driver, with what it needs: an earlier one, or one that npm makes now.
func install(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	content := map[string][]byte{}
	sum := sha256.New()
	for _, name := range []string{"visit.mjs", "package.json", "package-lock.json"} {
		if content[name], err = driver.ReadFile(name); err != nil {
			return "", err
		}
		sum.Write(content[name])
	}
	dir := filepath.Join(cache, "heddle", "browser-"+hex.EncodeToString(sum.Sum(nil))[:12])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	// It gets its name when it is whole; several tests may do this at once.
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "browser-new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	for name, text := range content {
		if err := os.WriteFile(filepath.Join(fresh, name), text, 0o644); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = fresh
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &path.Error{What: "install playwright-core", Why: string(bytes.TrimSpace(out)),
			Hint: "npm must reach a registry, once", Err: err}
	}
	if err := os.Rename(fresh, dir); err != nil {
		if _, there := os.Stat(dir); there != nil {
			return "", fmt.Errorf("install playwright-core: %w", err)
		}
	}
	return dir, nil
}
