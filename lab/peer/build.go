package peer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"heddle/path"
)

const wireguardModule = "golang.zx2c4.com/wireguard"

// WireGuardGo gives the path of the unmodified wireguard-go, built from the module version that go.mod pins. It must
// be called below the source tree, once; later calls find the build in the user's cache.
func WireGuardGo(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	version, err := goTool(ctx, "list", "-m", "-f", "{{.Version}}", wireguardModule)
	if err != nil {
		return "", err
	}
	file := filepath.Join(cache, "heddle", "peers", "wireguard-go-"+version)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	// Several builds at once must not see each other's half.
	fresh := fmt.Sprintf("%s.%d", file, os.Getpid())
	defer os.Remove(fresh)
	if _, err := goTool(ctx, "build", "-trimpath", "-o", fresh, wireguardModule); err != nil {
		return "", err
	}
	return file, os.Rename(fresh, file)
}

func goTool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", &path.Error{What: "go " + args[0], Why: string(bytes.TrimSpace(stderr.Bytes())),
			Hint: "install Go and start heddle below its source tree", Err: err}
	}
	return string(bytes.TrimSpace(out)), nil
}
