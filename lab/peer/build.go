package peer

import (
	"bytes"
	"context"
	"os/exec"
	"runtime/debug"

	"heddle/path"
)

// GoProgram gives the path of an unmodified program of others, built from the module version that go.mod pins; dir is where
// in the module its main package is. A build in the user's cache comes first, then a new build, which needs the source tree as
// working directory, then an installed program of that name.
func GoProgram(ctx context.Context, name, module, dir string) (string, error) {
	file, err := cachedGo(ctx, name, module, nil, module+dir)
	if err == nil {
		return file, nil
	}
	if file, err := exec.LookPath(name); err == nil {
		return file, nil
	}
	return "", needsSource(name, "install "+name, err)
}

// cachedGo gives a program of the pinned version of a module, and of sources of Heddle's own, which it builds once.
func cachedGo(ctx context.Context, name, module string, sources map[string][]byte, main string) (string, error) {
	version, err := moduleVersion(ctx, module)
	if err != nil {
		return "", err
	}
	if sources != nil {
		version = Digest(version, sources)
	}
	return Cached(name+"-"+version, func(fresh string) error {
		_, err := goTool(ctx, "build", "-trimpath", "-o", fresh, main)
		return err
	})
}

// buildInfo is a variable for tests, whose programs do not know their modules.
var buildInfo = debug.ReadBuildInfo

// moduleVersion gives the version of a module that go.mod pins. This program was built with most of them, and knows those without
// the source tree.
func moduleVersion(ctx context.Context, module string) (string, error) {
	if info, ok := buildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module && dep.Replace == nil {
				return dep.Version, nil
			}
		}
	}
	return goTool(ctx, "list", "-m", "-f", "{{.Version}}", module)
}

func needsSource(name, or string, err error) error {
	return &path.Error{What: name, Why: "it has to be built once, which needs Go and Heddle's source tree as working directory", Err: err,
		Hint: "run the same once in the source tree; later runs work anywhere. Or " + or}
}

func goTool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", &path.Error{What: "go " + args[0], Why: string(bytes.TrimSpace(stderr.Bytes())), Err: err}
	}
	return string(bytes.TrimSpace(out)), nil
}
