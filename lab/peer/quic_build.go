package peer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"heddle/internal/filelock"
	"heddle/path"
)

// Sources of the servers: each directory is one program.
//
//go:embed quicgo aioquic/server.py aioquic/requirements.txt quiche/Cargo.toml quiche/crates.lock quiche/src/main.rs
var quicSources embed.FS

// Sources returns the embedded files of a directory, by name.
func Sources(embedded embed.FS, dir string) map[string][]byte {
	files := map[string][]byte{}
	fs.WalkDir(embedded, dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files[strings.TrimPrefix(name, dir+"/")], err = embedded.ReadFile(name)
		}
		return err
	})
	return files
}

func sources(program string) map[string][]byte { return Sources(quicSources, program) }

// Digest is a short hash that distinguishes versions of files.
func Digest(version string, files map[string][]byte) string {
	sum := sha256.New()
	fmt.Fprintln(sum, version)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(sum, "%s %x\n", name, sha256.Sum256(files[name]))
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

// Write writes files below dir.
func Write(dir string, files map[string][]byte) error {
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// quicGo returns the quic-go server and client, built from the module version that go.mod pins. The first call must be
// made below the source tree, see [GoProgram].
func quicGo(ctx context.Context) (string, error) {
	file, err := cachedGo(ctx, "quicgo", "github.com/quic-go/quic-go", sources("quicgo"), "heddle/lab/peer/quicgo")
	if err != nil {
		return "", needsSource("the quic-go client and server", "copy ~/.cache/heddle/peers from a machine that has it", err)
	}
	return file, nil
}

// CheckQUICServer fails if the server made of a library is not built yet and cannot be, so that a bench need not find that out
// halfway.
func CheckQUICServer(library string) error {
	switch {
	case library == "ngtcp2":
		if _, err := exec.LookPath(gtlsserver); err != nil {
			return missing(gtlsserver, "apt-get install ngtcp2-server")
		}
	case library == "quiche" && !isCached("quiche-"+Digest("", sources("quiche"))):
		return canBuildQuiche(exec.LookPath, libclangDirs())
	}
	return nil
}

// Aioquic returns the directory of a Python environment with the pinned aioquic and server.py, cached for the user.
func Aioquic(ctx context.Context, say func(string, ...any)) (string, error) {
	files := sources("aioquic")
	return Cached("aioquic-"+Digest("", files), func(fresh string) error {
		say("installing aioquic, once")
		if err := Write(fresh, files); err != nil {
			return err
		}
		if err := Tool(ctx, fresh, "apt-get install python3-venv", "python3", "-m", "venv", "."); err != nil {
			return err
		}
		return Tool(ctx, fresh, "pip must reach a registry, once", filepath.Join(fresh, "bin", "python"),
			"-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:", "-r", "requirements.txt")
	})
}

// quiche returns the server program on the pinned quiche crate.
func quiche(ctx context.Context, say func(string, ...any)) (string, error) {
	files := sources("quiche")
	return Cached("quiche-"+Digest("", files), func(fresh string) error {
		if err := CheckQUICServer("quiche"); err != nil {
			return err
		}
		// cargo's build output stays there, for when only the server itself changes.
		dir := filepath.Join(filepath.Dir(filepath.Dir(fresh)), "quiche-build")
		say("building the quiche server in %s, once: several minutes", dir)
		if err := Write(dir, files); err != nil {
			return err
		}
		const hint = "cargo must reach a registry, and be no older than the crates ask for"
		if err := Tool(ctx, dir, hint, "cargo", "generate-lockfile", "--quiet"); err != nil {
			return err
		}
		if err := pinCrates(filepath.Join(dir, "Cargo.lock"), files["crates.lock"]); err != nil {
			return err
		}
		if err := Tool(ctx, dir, hint, "cargo", "build", "--quiet", "--release", "--locked"); err != nil {
			return err
		}
		return copyFile(fresh, filepath.Join(dir, "target", "release", "heddle-quiche"), 0o755)
	})
}

// canBuildQuiche fails if something that the build needs is missing. cargo would find that out after minutes. lookPath is
// [exec.LookPath], and libclang may lie in one of dirs.
func canBuildQuiche(lookPath func(string) (string, error), dirs []string) error {
	var missing, packages []string
	for _, needed := range []struct{ program, debian string }{{"cargo", "cargo"}, {"c++", "g++"}, {"cmake", "cmake"}} {
		if _, err := lookPath(needed.program); err != nil {
			missing, packages = append(missing, needed.program), append(packages, needed.debian)
		}
	}
	found := slices.ContainsFunc(dirs, func(dir string) bool {
		// The names that clang-sys, which bindgen loads libclang with, tries. libclang-cpp is another library.
		for _, pattern := range []string{"libclang.so", "libclang-[0-9]*.so", "libclang.so.*", "libclang-[0-9]*.so.*"} {
			if files, _ := filepath.Glob(filepath.Join(dir, pattern)); len(files) > 0 {
				return true
			}
		}
		return false
	})
	if !found {
		missing, packages = append(missing, "libclang"), append(packages, "libclang-dev")
	}
	if len(missing) == 0 {
		return nil
	}
	return &path.Error{What: "the quiche server", Why: "it cannot be built without " + strings.Join(missing, ", "),
		Hint: "as root, dist/install-deps bench; or apt-get install " + strings.Join(packages, " ") + "; or measure another server: --only distinct/quic-go", Err: ErrMissing}
}

// libclangDirs lists where libclang is looked for, one directory or pattern each.
func libclangDirs() []string {
	return append(filepath.SplitList(os.Getenv("LIBCLANG_PATH")), filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")+":"+
		"/usr/lib*:/usr/lib*/*-linux-*:/usr/lib*/llvm*/lib*:/usr/local/lib*:/usr/local/llvm*/lib*")...)
}

// pinCrates replaces cargo's lock file by the pinned one. That one lacks the lines that name each crate's registry,
// which depend on this machine; its checksums identify the crates.
func pinCrates(file string, pinned []byte) error {
	made, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var source string
	for line := range strings.Lines(string(made)) {
		if strings.HasPrefix(line, "source = ") {
			source = line
			break
		}
	}
	return os.WriteFile(file, []byte(strings.ReplaceAll(string(pinned), "\nchecksum = ", "\n"+source+"checksum = ")), 0o644)
}

// isCached reports whether something has this name in the user's cache.
func isCached(name string) bool {
	cache, err := os.UserCacheDir()
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(cache, "heddle", "peers", name))
	return err == nil
}

// Cached returns the cached file or directory with this name. If it is missing, make creates it at the path fresh. The
// name must contain a digest of its sources.
func Cached(name string, make func(fresh string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	file := filepath.Join(cache, "heddle", "peers", name)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	lock, err := filelock.Lock(filepath.Join(filepath.Dir(file), "."+name))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if _, err := os.Stat(file); err == nil { // another process made it
		return file, nil
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	fresh := filepath.Join(dir, name)
	if err := make(fresh); err != nil {
		return "", err
	}
	return file, os.Rename(fresh, file)
}

// Tool runs a program that makes something in dir.
func Tool(ctx context.Context, dir, hint, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		const most = 4096 // bytes of what it said last
		why := bytes.TrimSpace(out)
		return &path.Error{What: "run " + name, Why: string(why[max(0, len(why)-most):]), Hint: hint, Err: err}
	}
	return nil
}
