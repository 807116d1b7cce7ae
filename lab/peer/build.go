package peer

import (
	"bytes"
	"context"
	"os/exec"

	"heddle/path"
)

// GoProgram builds an unmodified third-party program from the module version that go.mod pins, and returns its path.
// dir is its main package within the module. Call it below the source tree once; later calls use the user's cache.
func GoProgram(ctx context.Context, name, module, dir string) (string, error) {
	version, err := goTool(ctx, "list", "-m", "-f", "{{.Version}}", module)
	if err != nil {
		return "", err
	}
	return Cached(name+"-"+version, func(fresh string) error {
		_, err := goTool(ctx, "build", "-trimpath", "-o", fresh, module+dir)
		return err
	})
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
