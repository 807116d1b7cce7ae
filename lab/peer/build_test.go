package peer

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"heddle/internal/errhint"
)

// emptyProgram writes an empty program of that name, and gives its file.
func emptyProgram(t *testing.T, dir, name string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// Outside the source tree a build in the cache comes first, then an installed program.
func TestGoProgramOutsideTheSourceTree(t *testing.T) {
	cache, installed := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("PATH", installed)
	t.Chdir(t.TempDir())
	const module = "golang.zx2c4.com/wireguard"
	_, err := GoProgram(t.Context(), "wireguard-go", module, "")
	if err == nil || !strings.Contains(err.Error(), "source tree") || !strings.Contains(errhint.Of(err), "install wireguard-go") {
		t.Errorf("neither: %v (%s)", err, errhint.Of(err))
	}
	want := emptyProgram(t, installed, "wireguard-go")
	if got, err := GoProgram(t.Context(), "wireguard-go", module, ""); got != want || err != nil {
		t.Errorf("installed: %s, %v", got, err)
	}
	buildInfo = func() (*debug.BuildInfo, bool) {
		return &debug.BuildInfo{Deps: []*debug.Module{{Path: module, Version: "v1.2.3"}}}, true
	}
	t.Cleanup(func() { buildInfo = debug.ReadBuildInfo })
	dir := filepath.Join(cache, "heddle", "peers")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	want = emptyProgram(t, dir, "wireguard-go-v1.2.3")
	if got, err := GoProgram(t.Context(), "wireguard-go", module, ""); got != want || err != nil {
		t.Errorf("cached: %s, %v", got, err)
	}
}

// cargo builds for minutes before it misses libclang.
func TestQuicheIsCheckedBeforeItIsBuilt(t *testing.T) {
	lookPath := func(name string) (string, error) {
		if name == "cmake" {
			return "", os.ErrNotExist
		}
		return "/" + name, nil
	}
	empty, llvm := t.TempDir(), t.TempDir()
	emptyProgram(t, empty, "libclang-cpp.so.14") // another library
	err := canBuildQuiche(lookPath, []string{empty})
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "without cmake, libclang") || !strings.Contains(errhint.Of(err), "apt-get install cmake libclang-dev") {
		t.Errorf("%v (%s)", err, errhint.Of(err))
	}
	emptyProgram(t, llvm, "libclang-14.so.1")
	if err := canBuildQuiche(func(string) (string, error) { return "", nil }, []string{empty, llvm}); err != nil {
		t.Error(err)
	}
}
